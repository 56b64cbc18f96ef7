//! Opens arbitrary bytes as a file and as a stream; if they can be opened, exports the recording and opens it again.
#![no_main]

use highwater_fuzz::{check_trace, go};
use highwater_pytorch::open::{open_bytes, open_stream};
use highwater_analysis::Source;
use highwater_analysis::peak_stacks::{StackFormat, write_peak_stacks};
use highwater_pytorch::export::{write_json, write_pickle};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let opened = open_bytes(bytes, &mut go);
    assert_eq!(opened.is_ok(), open_stream(bytes, &mut go).is_ok());
    let Ok(opened) = opened else { return };
    let (mut pickle, mut json) = (Vec::new(), Vec::new());
    write_pickle(&mut pickle, &opened.trace, &mut go).expect("what was read can be exported");
    write_json(&mut json, &opened.trace, &mut go).expect("what was read can be exported");
    for format in [StackFormat::Folded, StackFormat::Speedscope, StackFormat::Pprof] {
        let source = Source::in_memory(&opened.trace);
        write_peak_stacks(Vec::new(), &source, format).expect("what was read can be exported");
    }
    for exported in [pickle, json] {
        let again = open_bytes(&exported, &mut go).expect("what was exported opens").trace;
        assert_eq!(again.events.len(), opened.trace.events.len());
    }
    check_trace(opened.trace);
});
