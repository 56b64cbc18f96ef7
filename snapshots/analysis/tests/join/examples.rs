//! Examples of joined recordings: an allocator and its driver, ranks, different clocks, and a PyTorch recording.

use std::path::Path;

use highwater_analysis::join::{DROPPED, JoinPart, Joined, join};
use highwater_analysis::verify::verify_trace;
use highwater_analysis::{Metric, Series};
use highwater_notation::trace_from_text;
use highwater_pytorch::open::open_file;
use highwater_snapshots::format::{read_bytes, write_trace};
use highwater_snapshots::text::event_text;
use highwater_snapshots::trace::{DeviceFacts, Header, Trust};
use highwater_snapshots::{DeviceId, EventId, Phase, Problem, Trace};

const ALLOCATOR: &str = "
baseline w 4096/4096 parameter @net
segment_alloc 0x0 2097152 t=0us
step 0 t=0us
phase forward t=10us
alloc a 1000/1024 activation #linear @net.fc t=20us < forward < main
attribute note first
phase backward t=40us
free a t=50us
mark the end
";

const DRIVER: &str = "
baseline_segment 0x0 4194304
step 7 t=0us
alloc d 2097152 t=5us < cudaMalloc < main
attribute note second
alloc e 512 t=30us < cudaMalloc < main
free e t=45us
";

fn recording(text: &str, started_unix_us: u64, name: &str) -> Trace {
    trace_from_text(text).unwrap().edited(|trace| {
        trace.header =
            Header { recorder: "highwater 0.1.0".into(), program: "train".into(), pid: 7, ..Header::default() };
        trace.header.started_unix_us = started_unix_us;
        trace.devices = vec![DeviceFacts { name: name.into(), capacity_bytes: 8 << 30, ..DeviceFacts::default() }];
    })
}

fn joined(parts: &[(&str, &Trace, i64)]) -> Joined {
    let parts: Vec<JoinPart<'_>> =
        parts.iter().map(|&(name, trace, offset_ns)| JoinPart { name, trace, offset_ns }).collect();
    join(&parts).unwrap()
}

fn lines(trace: &Trace) -> Vec<String> {
    trace
        .events
        .ids()
        .map(|id| format!("{} {}", trace.events.time_ns[id.0 as usize] / 1000, event_text(trace, id)))
        .collect()
}

#[test]
fn an_allocator_and_the_driver_below_it_share_one_axis() {
    let (allocator, driver) = (recording(ALLOCATOR, 1_000_000, "cuda:0"), recording(DRIVER, 1_000_010, "cuda:0"));
    let joined = joined(&[("allocator", &allocator, 0), ("driver", &driver, 0)]);
    let trace = &joined.trace;
    let order: Vec<(u64, u16)> = trace
        .events
        .ids()
        .map(|id| (trace.events.time_ns[id.0 as usize] / 1000, trace.events.device[id.0 as usize].0))
        .collect();
    let expected = [
        (0, 0),
        (0, 0),
        (10, 0),
        (15, 1),
        (20, 0),
        (40, 0),
        (40, 1),
        (50, 0),
        (50, 0),
        (51, 0),
        (51, 0),
        (55, 1),
        (55, 1),
    ];
    // The step ends with the recording that has it.
    assert_eq!(order, expected, "{:#?}", lines(trace));
    let names: Vec<&str> = trace.devices.iter().map(|facts| facts.name.as_str()).collect();
    assert_eq!(names, ["cuda:0 (allocator)", "cuda:0 (driver)"]);
    assert_eq!(trace.devices[1].capacity_bytes, 8 << 30);
    assert_eq!(joined.lost, ["1 step of driver: steps and phases are taken from allocator"]);
    assert_eq!(joined.warnings, [""; 0]);
    // The driver's blocks are in the program's phases.
    assert_eq!(trace.spans.steps(), [0]);
    assert_eq!(trace.spans.at(EventId(3)).unwrap().phase, Phase::Forward);
    assert_eq!(trace.spans.at(EventId(9)).unwrap().phase, Phase::Backward);
    let peak = |device| Series::build(trace, DeviceId(device)).peak(trace, Metric::Requested).0;
    assert_eq!((peak(0), peak(1)), (4096 + 1000, 2_097_152 + 512));
    // Rows that both recordings have occur once in the tables.
    let count = |text: &str| trace.tables.strings.iter().filter(|known| *known == text).count();
    assert_eq!((count("main"), count("note"), count("cudaMalloc")), (1, 1, 1));
    let attributes: Vec<&str> = trace.attributes.iter().map(|fact| trace.tables.string(fact.value)).collect();
    assert_eq!(attributes, ["second", "first"], "each with its own event");
    assert_eq!(
        (trace.header.program.as_str(), trace.header.pid, trace.header.started_unix_us),
        ("train", 7, 1_000_000)
    );
    let dropped = (DROPPED.to_owned(), joined.lost[0].clone());
    assert_eq!(trace.header.facts, [dropped], "they agree on everything else");
    assert_eq!(verify_trace(trace), []);
}

#[test]
fn devices_that_nobody_else_has_keep_their_numbers_and_names() {
    let at = |device: u16, name: &str| {
        recording(&format!("alloc a 1 device={device}\n"), 5, name)
            .edited(|trace| trace.devices[0].device = DeviceId(device))
    };
    let (first, second, third) = (at(1, "cuda:1"), at(0, "cuda:0"), at(1, "cuda:1"));
    let joined = joined(&[("rank0", &first, 0), ("rank1", &second, 0), ("rank2", &third, 0)]);
    let devices: Vec<(u16, &str, usize, u16)> = joined
        .devices
        .iter()
        .map(|device| (device.device.0, device.name.as_str(), device.part, device.was.0))
        .collect();
    assert_eq!(devices, [(0, "cuda:0", 1, 0), (1, "cuda:1 (rank0)", 0, 1), (2, "cuda:1 (rank2)", 2, 1)]);
}

#[test]
fn recordings_that_do_not_overlap_are_joined_with_a_warning_that_an_offset_answers() {
    let (first, second) = (recording(ALLOCATOR, 1_000_000, "a"), recording(DRIVER, 4_000_000, "b"));
    let apart = joined(&[("a", &first, 0), ("b", &second, 0)]);
    assert_eq!(apart.warnings.len(), 1);
    assert!(apart.warnings[0].starts_with("b begins 3.000 s after a ends"), "{:?}", apart.warnings);
    let moved = joined(&[("a", &first, 0), ("b", &second, -3_000_000_000)]);
    assert_eq!(moved.warnings, [""; 0]);
    assert_eq!(moved.trace.events.time_ns[2], 5_000);
    let before = joined(&[("a", &first, 0), ("b", &second, -3_500_000_000)]);
    assert_eq!(before.trace.header.started_unix_us, 500_000, "the axis begins with the earliest");
    assert!(before.warnings[0].starts_with("a begins 499.95 ms after b ends"), "{:?}", before.warnings);
}

#[test]
fn a_recording_without_a_time_of_day_is_laid_at_the_beginning_and_stated_to_be() {
    let (first, second) = (recording(ALLOCATOR, 1_000_000, "a"), recording(DRIVER, 0, "b"));
    let joined = joined(&[("b", &second, 0), ("a", &first, 0)]);
    assert!(joined.warnings[0].starts_with("b has no start time"), "{:?}", joined.warnings);
    assert_eq!((joined.warnings.len(), joined.trace.header.started_unix_us), (1, 1_000_000));
    assert_eq!(joined.lost, ["1 step, 2 phases of a: steps and phases are taken from b"]);
}

#[test]
fn what_limits_trust_adds_up_and_problems_say_where_they_were() {
    let part = |text: &str, name: &str, unfinished: bool| {
        recording(text, 5, name).edited(|part| {
            part.trust = Trust { events_lost: 3, sizes_inferred: 2, unfinished, ..Trust::default() };
            part.problems = vec![Problem::at(7, "a page was torn")];
        })
    };
    let parts = [part(ALLOCATOR, "a", false), part(DRIVER, "b", true)];
    let joined = joined(&[("a", &parts[0], 0), ("b", &parts[1], 0)]);
    let trust = Trust { events_lost: 6, sizes_inferred: 4, unfinished: true, ..Trust::default() };
    assert_eq!(joined.trace.trust, trust);
    let problems: Vec<String> = joined.trace.problems.iter().map(ToString::to_string).collect();
    assert_eq!(problems, ["a: at byte 7: a page was torn", "b: at byte 7: a page was torn"]);
}

#[test]
fn ranges_named_as_steps_are_those_of_one_recording_and_others_stay() {
    let text = "begin \"ProfilerStep#4\"\nalloc a 1\nbegin load\nalloc b 1\nend load\nend \"ProfilerStep#4\"\nfree a\n";
    let (first, second) = (recording(text, 5, "a"), recording(text, 5, "b"));
    let joined = joined(&[("a", &first, 0), ("b", &second, 0)]);
    let trace = &joined.trace;
    let names: Vec<&str> = trace.annotations.iter().map(|annotation| trace.tables.string(annotation.name)).collect();
    assert_eq!(names, ["ProfilerStep#4", "load", "load"]);
    assert_eq!(joined.lost, ["1 range named as a step or phase of b: steps and phases are taken from a"]);
    assert_eq!(trace.spans.steps(), [4]);
    let step = trace.annotations[0];
    assert_eq!((step.first.0, step.end.0), (0, 3), "{:?}", lines(trace));
    let loads: Vec<(u32, u32)> = trace.annotations[1..].iter().map(|load| (load.first.0, load.end.0)).collect();
    assert_eq!(loads, [(2, 3), (3, 4)], "{:?}", lines(trace));
}

#[test]
fn a_snapshot_of_pytorch_and_a_recording_below_it_keep_their_totals() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../pytorch/testdata/annotations.pickle.gz");
    let pytorch = open_file(&file, &mut |_| std::ops::ControlFlow::Continue(())).unwrap().trace;
    let driver = recording(DRIVER, pytorch.header.started_unix_us + 20, "NVIDIA H100");
    let stored = read_bytes(&write_trace(Vec::new(), &driver).unwrap()).unwrap();
    let joined = joined(&[("pytorch", &pytorch, 0), ("driver", &stored, 0)]);
    assert_eq!(joined.warnings, [""; 0]);
    let trace = &joined.trace;
    assert_eq!(trace.header.recorder, concat!("highwater ", env!("CARGO_PKG_VERSION"), " join"));
    assert_eq!(trace.header.facts[0], ("pytorch: recorder".to_owned(), "PyTorch".to_owned()));
    let parts = [&pytorch, &stored];
    let mut compared = 0;
    for device in &joined.devices {
        let [alone, whole] = [(parts[device.part], device.was), (trace, device.device)].map(|(trace, device)| {
            let series = Series::build(trace, device);
            Metric::ALL.map(|metric| series.peak(trace, metric).0)
        });
        assert_eq!(alone, whole, "{device:?}");
        compared += usize::from(alone[0] > 0);
    }
    assert!(compared >= 2);
    assert_eq!(trace.spans.steps(), pytorch.spans.steps());
    assert_eq!(trace.events.len(), pytorch.events.len() + stored.events.len() - 1, "but for the driver's step");
    assert_eq!(verify_trace(trace), []);
}
