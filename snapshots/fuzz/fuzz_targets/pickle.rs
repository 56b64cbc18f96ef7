//! Fuzz: any bytes as a pickle, by both sources; what opens must have totals that agree with themselves.
#![no_main]

use std::ops::ControlFlow;

use highwater_snapshots::analysis::verify::verify;
use highwater_snapshots::pytorch::assemble::assemble;
use highwater_snapshots::pytorch::pickle::{read_pickle, read_pickle_from};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let whole = read_pickle(bytes, &mut |_| ControlFlow::Continue(()));
    let streamed = read_pickle_from(bytes, None, &mut |_| ControlFlow::Continue(()));
    assert_eq!(whole.is_ok(), streamed.is_ok());
    if let Ok(raw) = whole {
        assert!(verify(&assemble(raw)).is_empty());
    }
});
