//! Tests that a joined recording preserves the properties of its parts, device by device.

#[path = "../../../tests/format/strange.rs"]
mod strange;
mod properties;
mod examples;
