//! Parses arbitrary bytes as JSON with both readers and checks the result.
#![no_main]

use highwater_fuzz::{check_snapshot, go};
use highwater_pytorch::json::{read_json, read_json_bytes};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    check_snapshot(read_json_bytes(bytes, &mut go), read_json(bytes, &mut go));
});
