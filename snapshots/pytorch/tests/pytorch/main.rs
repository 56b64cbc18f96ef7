//! Tests recordings of real programs against PyTorch's own statistics and an independent replay.
//!
//! `testdata` has the recordings, the programs that made them, and `expected.json`, which `make.py` writes.

mod expected;
mod found;
mod compare;
mod fixtures;
mod samples;
#[path = "../../../tests/format/strange.rs"]
mod strange;
mod allocator;
mod roundtrip;
