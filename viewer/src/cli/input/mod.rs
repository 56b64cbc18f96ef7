//! The input of commands: recordings, devices, rules for categories.

pub mod recording;
pub mod devices;
pub mod categories;
pub mod long;
