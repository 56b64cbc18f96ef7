//! Parses arbitrary bytes as a pickle from both sources and checks the result.
#![no_main]

use highwater_fuzz::{check_snapshot, go};
use highwater_pytorch::pickle::{read_pickle, read_pickle_from};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    check_snapshot(read_pickle(bytes, &mut go), read_pickle_from(bytes, None, &mut go));
});
