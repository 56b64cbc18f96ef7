//! Lets long work give way to other work where threads are missing, as in a browser; with threads there is nothing to do.
//! `yielding_web.rs` replaces it there.

/// Gives way if the current slice of work has taken its time. Loops over many events or blocks call it every few
/// thousand of them.
#[inline(always)]
pub fn yield_if_due() {}
