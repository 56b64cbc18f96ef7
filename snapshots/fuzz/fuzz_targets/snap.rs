//! Parses arbitrary bytes as a `.snap` file, both unchanged and with corrected checksums.
#![no_main]

use highwater_fuzz::{check_trace, mended};
use highwater_snapshots::format::read_bytes;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(trace) = read_bytes(bytes) {
        check_trace(trace);
    }
    check_trace(read_bytes(&mended(bytes)).expect("its preamble is right"));
});
