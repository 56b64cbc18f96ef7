//! Figures and sentences that the app and the command line both show.

pub mod device;
pub mod moment;
pub mod events;
pub mod predicted;
pub mod planned;
pub mod leaks;
pub mod requests;
pub mod cause;
pub mod ranks;
