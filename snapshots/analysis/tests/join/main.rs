//! Join: what is true of several recordings is true of them as one, device by device.

#[path = "../../../tests/format/strange.rs"]
mod strange;
mod properties;
mod examples;
