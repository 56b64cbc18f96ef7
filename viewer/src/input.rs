//! The input of commands: recordings, devices, rules for categories.

pub mod recording;
pub mod categories;
pub mod source;
pub mod devices;
