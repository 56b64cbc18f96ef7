//! Join: what is true of several recordings is true of them as one, device by device.

#[path = "../format/strange.rs"]
#[expect(dead_code, reason = "other tests use the rest of it")]
mod strange;
mod properties;
mod examples;
