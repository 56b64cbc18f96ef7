//! Lets long computations yield to other work on platforms without threads, such as the browser. With threads these
//! functions do nothing; `yielding_web.rs` replaces this file in the browser.

/// Yields if the current time slice is over. Call it before each piece of work of 0.1 ms or more.
#[inline(always)]
pub fn yield_if_due() {}

/// Counts work of at most a microsecond, such as one event; every few hundred calls, yields like [`yield_if_due`].
#[inline(always)]
pub fn tick() {}
