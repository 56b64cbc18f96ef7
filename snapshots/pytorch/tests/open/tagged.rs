//! Tests that recordings of the Python package, made by `tests/data/make.py`, have their modules, phases and steps.

use std::collections::BTreeMap;
use std::io::Read as _;

use flate2::read::GzDecoder;
use highwater_analysis::{Metric, Series};
use highwater_pytorch::open::open_bytes;
use highwater_snapshots::ids::{BlockId, DeviceId};
use highwater_snapshots::{Category, Trace};

use crate::made::go;

/// The highest `torch.cuda.max_memory_allocated` that PyTorch reported for both recordings.
const MAX_MEMORY_ALLOCATED: u64 = 36_766_720;

fn pickle(release: &str) -> Vec<u8> {
    let path = format!("{}/tests/data/tagged-{release}.pickle.gz", env!("CARGO_MANIFEST_DIR"));
    let mut bytes = Vec::new();
    GzDecoder::new(&std::fs::read(path).unwrap()[..]).read_to_end(&mut bytes).unwrap();
    bytes
}

fn open(bytes: &[u8]) -> Trace {
    open_bytes(bytes, &mut go).unwrap().trace
}

/// The number of blocks by module, phase and step of their allocation.
fn origins(trace: &Trace) -> BTreeMap<(String, &'static str, Option<u32>), u64> {
    let mut counts = BTreeMap::new();
    for id in 0..trace.blocks.len() {
        let span = trace.spans.at(trace.blocks.alloc[id]).unwrap();
        let module = trace.tables.scope_path(trace.blocks.scope[id]);
        *counts.entry((module, span.phase.name(), span.step)).or_default() += 1;
    }
    counts
}

fn problems(trace: &Trace) -> String {
    trace.problems.iter().map(|problem| format!("{problem}\n")).collect()
}

/// Replaces every `from` by `to`, of the same length, so that the pickle stays one.
fn replaced(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut bytes = bytes.to_vec();
    let found: Vec<usize> =
        bytes.windows(from.len()).enumerate().filter(|(_, part)| *part == from.as_bytes()).map(|(at, _)| at).collect();
    assert!(!found.is_empty(), "no {from}");
    for at in found {
        bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
    }
    bytes
}

#[test]
fn metadata_and_annotations_give_the_same_modules_phases_and_steps() {
    let [metadata, annotations] = ["2.15", "2.6"].map(|release| open(&pickle(release)));
    assert_eq!(origins(&metadata), origins(&annotations));
    for trace in [&metadata, &annotations] {
        assert!(trace.spans.are_tagged() && trace.spans.names_steps() && !trace.spans.are_guessed());
        assert_eq!(trace.spans.steps(), [0, 1]);
        assert_eq!(problems(trace), "");
        let origins = origins(trace);
        let count = |module: &str, phase| origins.get(&(module.to_owned(), phase, Some(1))).copied().unwrap_or(0);
        // Output and its backward; the weight's gradient is in backward too.
        assert_eq!((count("head", "forward"), count("head", "backward")), (1, 2));
        assert!(count("blocks.0.attention.qkv", "backward") >= 2);
        let recompute = trace.annotations.iter().filter(|row| trace.tables.string(row.name) == "recompute").count();
        assert_eq!(recompute, 2, "one in each step");
    }
}

#[test]
fn modules_sum_to_pytorchs_own_peak() {
    for release in ["2.15", "2.6"] {
        let trace = open(&pickle(release));
        let (bytes, _) = Series::build(&trace, DeviceId(0)).peak(&trace, Metric::Allocated);
        assert_eq!(bytes, MAX_MEMORY_ALLOCATED);
    }
}

#[test]
fn tensors_that_are_live_at_the_end_have_known_categories() {
    let trace = open(&pickle("2.15"));
    let live: Vec<BlockId> =
        trace.blocks.ids().filter(|id| !trace.blocks.free_requested[id.0 as usize].is_some()).collect();
    let count = |category| live.iter().filter(|id| trace.blocks.category[id.0 as usize] == category).count();
    let counts = [Category::Parameter, Category::OptimizerState, Category::Gradient, Category::Unknown].map(count);
    // 14 parameters, 2 states of each, no gradient after zero_grad.
    assert_eq!(counts, [14, 28, 0, 0]);
    assert_eq!(trace.devices[0].capacity_bytes, 200 << 30);
    assert_eq!(trace.header.ring_capacity, Some(1_000_000));
}

#[test]
fn a_recording_whose_ring_was_full_says_so() {
    let bytes = pickle("2.15");
    // 1,000,000 as a pickle has it, and a smaller number of events than there are.
    let number = |value: u32| [b"J", &value.to_le_bytes()[..]].concat();
    let (from, to) = (number(1_000_000), number(100));
    let at = bytes.windows(5).position(|part| part == from).unwrap();
    let full = [&bytes[..at], &to, &bytes[at + 5..]].concat();
    let trace = open(&full);
    assert!(trace.header.notes().any(|note| note.contains("PyTorch kept the last 100 events")));
    assert_eq!(problems(&trace), "", "a recording of the last events is sound");
}

#[test]
fn tags_that_were_edited_are_counted_and_give_no_module() {
    let bytes = replaced(&pickle("2.15"), r#""phase":"recompute""#, r#""phase":"recompost""#);
    let trace = open(&bytes);
    assert!(trace.header.notes().any(|note| note.contains("allocations without a tag: ")), "{:?}", trace.header);
    let blocks = origins(&trace).into_iter().filter(|((module, ..), _)| module.is_empty());
    assert!(blocks.map(|(_, count)| count).sum::<u64>() > 10);
}

#[test]
fn a_list_of_tensors_that_does_not_fit_the_blocks_is_stated() {
    let bytes = replaced(&pickle("2.15"), "optimizer_state", "optimizer_stats");
    let trace = open(&bytes);
    assert!(problems(&trace).contains("28 of 42 tensors"), "{}", problems(&trace));
}

#[test]
fn a_truncated_recording_says_so_and_keeps_the_modules_that_it_has() {
    for release in ["2.15", "2.6"] {
        let (whole, bytes) = (open(&pickle(release)), pickle(release));
        let known: Vec<String> = origins(&whole).into_keys().map(|(module, ..)| module).collect();
        for tenth in 1..10 {
            let Ok(opened) = open_bytes(&bytes[..bytes.len() * tenth / 10], &mut go) else { continue };
            assert!(!problems(&opened.trace).is_empty(), "{release} {tenth}");
            for (module, ..) in origins(&opened.trace).into_keys() {
                assert!(known.contains(&module), "{module}");
            }
        }
    }
}
