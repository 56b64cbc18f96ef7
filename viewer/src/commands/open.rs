//! `highwater FILE…`: opens the app, or prints a summary if it cannot be shown.

pub mod summary;
