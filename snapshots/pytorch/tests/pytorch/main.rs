//! PyTorch: what is found in recordings of real programs, against what PyTorch counted itself and a second replay.
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
