//! Tests that the engine's allocator, the file and the analysis agree on every count.

use std::path::Path;

use highwater_analysis::{Metric, Series, verify};
use highwater_engine::device::WORKSPACE_BYTES;
use highwater_engine::scenario::{self, DeviceChoice, Options, Report};
use highwater_engine::{DType, Device, Tensor};
use highwater_recorder::{Category, HistoryOptions, Level, Recording, scope};
use highwater_snapshots::format::read_file;
use highwater_snapshots::{Phase, Trace};
use highwater_tests::same_events::{difference, lines};

fn record(name: &str, options: &Options, path: &Path) -> (Report, Trace) {
    let _turn = highwater_tests::recording_turn();
    let report = scenario::record(name, options, path).expect("the scenario runs");
    (report, read_file(path).expect("its recording opens"))
}

#[test]
fn peaks_in_the_file_are_the_peaks_that_the_allocator_counted() {
    let _turn = highwater_tests::recording_turn();
    let recording = Recording::start(HistoryOptions::in_memory().level(Level::Events)).expect("nothing else records");
    let device = Device::accounting(1 << 34);
    let mut kept = Vec::new();
    let mut number = 7_usize;
    for _ in 0..3000 {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let elements = 1 + (number >> 33) % (1 << (4 + (number >> 20) % 18));
        kept.push(Tensor::empty([elements], DType::F32, &device).expect("it fits"));
        if kept.len() > 20 {
            kept.swap_remove((number >> 40) % kept.len());
        }
    }
    let stats = device.allocator().stats();
    let trace = recording.finish().expect("memory takes everything").trace.expect("wanted in memory");
    let series = Series::build(&trace, device.id());
    let end = series.end(&trace);
    let figures = [
        (Metric::Requested, &stats.requested_bytes.all, end.requested),
        (Metric::Allocated, &stats.allocated_bytes.all, end.allocated),
        (Metric::Active, &stats.active_bytes.all, end.active),
        (Metric::Reserved, &stats.reserved_bytes.all, end.reserved),
    ];
    for (metric, counted, at_end) in figures {
        let (peak, _) = series.peak(&trace, metric);
        assert_eq!((peak, at_end), (counted.peak, counted.current), "{metric}");
    }
    assert_eq!(verify::verify_trace(&trace), []);
}

#[test]
fn a_training_step_is_recorded_with_categories_scopes_ops_and_stacks() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let (report, trace) =
        record("vit-small", &Options { steps: 2, ..Options::default() }, &folder.path().join("v.snap"));
    assert_eq!((report.steps_done, report.oom), (2, None));
    assert!(trace.trust.is_complete(), "{:?}", trace.trust.sentences());
    assert_eq!(verify::verify_trace(&trace), []);
    assert_eq!(trace.spans.steps(), [0, 1]);
    for category in [Category::Parameter, Category::Activation, Category::Gradient, Category::OptimizerState] {
        assert!(trace.blocks.category.contains(&category), "no block is a {category}");
    }
    let nobody_said = trace.blocks.category.iter().filter(|category| **category == Category::Unknown).count();
    assert_eq!(nobody_said, 0, "every block of the engine says what it is for");
    let parameters = trace.blocks.ids().map(|id| trace.blocks.get(id));
    let parameters: Vec<_> = parameters.filter(|block| block.category == Category::Parameter).collect();
    let at_root = parameters.iter().filter(|block| !block.scope.is_some()).count();
    assert_eq!(at_root, 1, "of {} only the class token", parameters.len());
    let in_backward = trace
        .blocks
        .ids()
        .map(|id| trace.blocks.get(id))
        .filter(|block| trace.spans.at(block.alloc).is_some_and(|span| span.phase == Phase::Backward));
    let mut roots = 0;
    for block in in_backward {
        match trace.tables.op(block.op) {
            Some(op) => assert!(op.stack.is_some(), "backward knows the stack of its forward"),
            None => roots += 1,
        }
    }
    assert_eq!(roots, 2, "only the gradient of the loss itself, once a step, belongs to no operation");
    let stack = trace.tables.stack_text(trace.blocks.stack[0]).join("\n");
    assert!(stack.contains("highwater_engine::scenario") && stack.contains(".rs:"), "{stack}");
}

#[test]
fn cpu_and_meta_make_the_same_events() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let events = |device, name: &str| {
        let options = Options { steps: 2, device, uses: true, ..Options::default() };
        let (_, trace) = record("vit-small", &options, &folder.path().join(name));
        lines(&trace)
    };
    let (cpu, meta) = (events(DeviceChoice::Cpu, "cpu.snap"), events(DeviceChoice::Meta, "meta.snap"));
    assert!(cpu.len() > 500, "{} events", cpu.len());
    assert_eq!(difference(&cpu, &meta), None);
    assert_eq!(difference(&cpu, &meta[1..]).map(|first| first.same), Some(0));
    assert_eq!(difference(&cpu, &meta[..7]).map(|first| (first.same, first.lines[1].clone())), Some((7, None)));
}

#[test]
fn counting_for_a_gpu_counts_what_the_gpu_keeps_for_itself() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let run = |device| {
        let options = Options { steps: 1, device, ..Options::default() };
        record("mlp", &options, &folder.path().join("m.snap")).1
    };
    let (plain, for_gpu) = (run(DeviceChoice::Meta), run(DeviceChoice::MetaForCuda));
    let reserved = |trace: &Trace| Series::build(trace, trace.main_device()).peak(trace, Metric::Reserved).0;
    assert_eq!(reserved(&for_gpu), reserved(&plain) + WORKSPACE_BYTES);
    let workspace = for_gpu.blocks.get(for_gpu.blocks.ids().next().expect("it has blocks"));
    assert_eq!((workspace.category, workspace.requested), (Category::Workspace, WORKSPACE_BYTES));
    // Blocks are numbered from the workspace on there; all else is the same.
    let unnumbered = |trace: &Trace| {
        let is_number = |word: &&str| word.strip_prefix('b').is_some_and(|rest| rest.parse::<u64>().is_ok());
        let line = |line: &String| line.split(' ').filter(|word| !is_number(word)).collect::<Vec<_>>().join(" ");
        lines(trace).iter().map(line).collect::<Vec<_>>()
    };
    assert_eq!(difference(&unnumbered(&plain), &unnumbered(&for_gpu)), None);
}

#[test]
fn a_run_out_of_memory_is_described_and_its_recording_holds_the_failed_request() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let options = Options { capacity: Some(6 << 20), ..Options::default() };
    let (report, trace) = record("vit-small", &options, &folder.path().join("oom.snap"));
    let oom = report.oom.expect("6 MiB are not enough");
    assert!(oom.description.contains("MiB"), "{}", oom.description);
    assert_eq!(trace.ooms.len(), 1);
    assert_eq!(trace.ooms[0].requested, oom.requested);
    assert!(!trace.trust.unfinished, "the recording was finished in spite of it");
    let reserved = Series::build(&trace, trace.main_device()).peak(&trace, Metric::Reserved).0;
    assert!(reserved <= 6 << 20);
}

#[test]
fn a_recording_that_begins_after_the_model_was_built_knows_its_parameters() {
    let _turn = highwater_tests::recording_turn();
    let device = Device::accounting(1 << 30);
    let weights = {
        let _scope = scope::scope("encoder");
        let _category = scope::category(Category::Parameter);
        Tensor::zeros([64, 64], DType::F32, &device).expect("it fits")
    };
    let later = {
        let _category = scope::category(Category::Temporary);
        Tensor::zeros([3], DType::F32, &device).expect("it fits")
    };
    later.tag(Category::Buffer);
    let recording = Recording::start(HistoryOptions::in_memory()).expect("nothing else records");
    let trace = recording.finish().expect("memory takes everything").trace.expect("wanted in memory");
    let here = |id: &highwater_snapshots::BlockId| trace.blocks.device[id.0 as usize] == device.id();
    let events: Vec<String> = trace
        .blocks
        .ids()
        .filter(here)
        .map(|id| trace.blocks.get(id))
        .map(|block| format!("{} {} @{}", block.requested, block.category, trace.tables.scope_path(block.scope)))
        .collect();
    assert_eq!(events, ["16384 parameter @encoder", "12 buffer @"]);
    drop((weights, later));
}
