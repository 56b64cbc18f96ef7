//! Tests of the allocator without a recording, in one binary.

mod noting_driver;
mod script;
mod cases;
mod config;
mod expandable;
mod failures;
mod limits;
mod model;
mod pytorch;
