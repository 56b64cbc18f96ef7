//! Lets long work give way to other work where threads are missing, as in a browser; with threads there is nothing to
//! do. `yielding_web.rs` replaces it there.

/// Gives way if the current slice of work has taken its time. Called before pieces of work that take a tenth of a
/// millisecond and more.
#[inline(always)]
pub fn yield_if_due() {}

/// Counts a piece of work that takes a microsecond or less, as for one event or block; after some hundreds of them,
/// gives way like [`yield_if_due`].
#[inline(always)]
pub fn tick() {}
