//! Lets long computations yield to other work on platforms without threads, such as the browser. On platforms with
//! threads, these functions do nothing. In browsers, `yielding_web.rs` replaces this file.

/// Yields if the current time slice is over. Call it before each piece of work of 0.1 ms or more.
#[inline(always)]
pub fn yield_if_due() {}

/// Counts work of at most a microsecond, such as one event. Every few hundred calls, yields like [`yield_if_due`].
#[inline(always)]
pub fn tick() {}
