//! Tests that recordings of JAX, Nsight Systems, RMM and NCCL can be opened, and the errors if they cannot.
//! `testdata/tools` has the files and the programs that made them.

use std::io::Read as _;

use flate2::read::GzDecoder;
use highwater_analysis::{Metric, Series};
use highwater_pytorch::open::{FileKind, open_bytes, open_stream};
use highwater_snapshots::format::write_trace;
use highwater_snapshots::ids::{DeviceId, EventId, StreamId};
use highwater_snapshots::trace::{Allocator, PINNED_DEVICE, Subject};
use highwater_snapshots::{Error, Trace};

use crate::made::{events, go, gzip};

/// A file of `testdata/tools`.
pub(crate) fn file(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/testdata/tools/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn gunzip(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut plain).unwrap();
    plain
}

fn open(bytes: &[u8]) -> Trace {
    open_bytes(bytes, &mut go).unwrap().trace
}

fn refused(bytes: &[u8]) -> String {
    open_bytes(bytes, &mut go).unwrap_err().to_string()
}

fn peak(trace: &Trace, device: u16, metric: Metric) -> u64 {
    Series::build(trace, DeviceId(device)).peak(trace, metric).0
}

/// The stack and the scope of each block: `f < main in cudaMalloc`.
fn origins(trace: &Trace) -> Vec<String> {
    let tables = &trace.tables;
    let of = |id| {
        let block = trace.blocks.get(id);
        format!("{} in {}", tables.stack_text(block.stack).join(" < "), tables.scope_path(block.scope))
    };
    trace.blocks.ids().map(of).collect()
}

#[test]
fn a_profile_of_jax_is_the_state_of_its_devices() {
    let bytes = file("memory.prof");
    let opened = open_bytes(&bytes, &mut go).unwrap();
    let trace = opened.trace;
    assert_eq!((opened.format.kind, opened.format.name().as_str()), (FileKind::Jax, "jax+gzip"));
    assert!(trace.is_state() && trace.problems.is_empty() && trace.is_complete());
    let names: Vec<(u16, &str)> = trace.devices.iter().map(|facts| (facts.device.0, facts.name.as_str())).collect();
    assert_eq!(names, [(0, "cpu:0"), (1, "cpu:1")]);
    // Three parameters of 256 × 256 floats on each device; on the first, three activations of 32 × 256 as well.
    assert_eq!(peak(&trace, 0, Metric::Requested), 3 * 262_144 + 3 * 32_768);
    assert_eq!(peak(&trace, 1, Metric::Requested), 3 * 262_144);
    let origins = origins(&trace);
    let of = |part: &str| origins.iter().filter(|origin| origin.contains(part)).count();
    assert_eq!(of("/opt/jax/train.py:24 forward < /opt/jax/train.py:31 <module> in buffer"), 3);
    assert_eq!(of("/opt/jax/train.py:18 make_parameters < /opt/jax/train.py:30 <module> in buffer"), 3);
    assert_eq!(of("/opt/jax/train.py:18 make_parameters < /opt/jax/train.py:32 <module> in buffer"), 3);
    assert_eq!(of("in executable"), 5);
    // The same without compression, and from a pipe.
    let plain = gunzip(&bytes);
    let same = open_bytes(&plain, &mut go).unwrap();
    assert_eq!(same.format.name(), "jax");
    assert_eq!(same.trace.blocks.requested, trace.blocks.requested);
    assert_eq!(open_stream(&bytes[..], &mut go).unwrap().trace.blocks.requested, trace.blocks.requested);
}

#[test]
fn profiles_of_other_programs_and_profiles_that_are_cut_are_refused() {
    let plain = gunzip(&file("memory.prof"));
    let other = replaced(&plain, "allocations", "inuse_count");
    let error = refused(&other);
    assert!(error.contains("a pprof profile of 'inuse_count' in count and 'space' in bytes; only"), "{error}");
    let error = refused(&plain[..plain.len() - 9]);
    assert!(error.contains("the profile is cut off or damaged: a field goes past the end"), "{error}");
    let error = refused(&file("memory.prof")[..900]);
    assert!(error.contains("the gzip data ends early"), "{error}");
}

#[test]
fn samples_with_impossible_numbers_of_blocks_are_one_block_each() {
    use highwater_snapshots::pprof::{Profile, Sample, ValueType};
    use prost::Message as _;
    let strings = ["", "allocations", "count", "space", "bytes"].map(str::to_owned).to_vec();
    let types = vec![ValueType { r#type: 1, unit: 2 }, ValueType { r#type: 3, unit: 4 }];
    let sample = |count, bytes| Sample { value: vec![count, bytes], ..Sample::default() };
    let samples = vec![sample(3, 10), sample(i64::MAX, i64::MAX), sample(-1, 5), sample(0, 5), Sample::default()];
    let profile = Profile { sample_type: types, sample: samples, string_table: strings, ..Profile::default() };
    let trace = open(&profile.encode_to_vec());
    assert_eq!(trace.blocks.requested, [4, 3, 3, 0], "sizes that cannot be are 0");
    assert!(trace.problems.iter().any(|problem| problem.what.contains("groups of buffers that are one block each")));
}

#[test]
fn long_strings_of_a_profile_are_cut_and_rows_with_one_text_are_one_device() {
    use highwater_snapshots::pprof::{Function, Label, LineOf, Location, Profile, Sample, ValueType};
    use prost::Message as _;
    // An odd length before letters of two bytes: 64 KiB end within one.
    let name = format!("f{}", "é".repeat(1 << 20));
    let strings = ["", "allocations", "count", "space", "bytes", "kind", "device", "cuda:1", "cuda:1", "buffer", &name];
    let types = vec![ValueType { r#type: 1, unit: 2 }, ValueType { r#type: 3, unit: 4 }];
    let sample = |kind, device| Sample {
        location_id: vec![1],
        value: vec![1, 10],
        label: vec![Label { key: 5, str: kind }, Label { key: 6, str: device }],
    };
    let profile = Profile {
        sample_type: types,
        sample: vec![sample(9, 7), sample(10, 8)],
        location: vec![Location { id: 1, line: vec![LineOf { function_id: 1, line: 3 }] }],
        function: vec![Function { id: 1, name: 10, filename: 0 }],
        string_table: strings.map(str::to_owned).to_vec(),
        ..Profile::default()
    };
    let trace = open(&profile.encode_to_vec());
    assert_eq!(trace.devices.iter().map(|facts| (facts.device.0, &*facts.name)).collect::<Vec<_>>(), [(1, "cuda:1")]);
    let cut = format!("f{}", "é".repeat((32 << 10) - 1));
    let line = trace.tables.lines[0];
    assert_eq!((trace.tables.string(line.function), trace.tables.string(line.file)), (&*cut, ""));
    let scopes: Vec<String> =
        trace.blocks.ids().map(|id| trace.tables.scope_path(trace.blocks.get(id).scope)).collect();
    assert_eq!(scopes, ["buffer", &cut]);
}

#[test]
fn an_export_of_nsight_systems_is_a_recording_of_driver_calls() {
    let opened = open_bytes(&file("nsys.sqlite"), &mut go).unwrap();
    let trace = opened.trace;
    assert_eq!(opened.format.name(), "nsys");
    assert!(trace.problems.is_empty() && trace.is_complete(), "{:?}", trace.problems);
    assert_eq!((&*trace.header.recorder, &*trace.header.host), ("Nsight Systems 2025.3.1.90", "node-1"));
    assert_eq!(trace.header.started_unix_us, 1_790_000_000_000_000);
    let devices: Vec<_> =
        trace.devices.iter().map(|facts| (facts.device.0, &*facts.name, facts.capacity_bytes)).collect();
    assert_eq!(
        devices,
        [(0, "NVIDIA A", 40 << 30), (1, "NVIDIA B", 80 << 30), (PINNED_DEVICE.0, "pinned host memory", 0)]
    );
    assert_eq!(trace.allocator(DeviceId(0)), Allocator::Driver);
    // 16 MiB from before the capture, a static table, and an allocation of 4 MiB.
    for metric in [Metric::Requested, Metric::Reserved] {
        assert_eq!(peak(&trace, 0, metric), (20 << 20) + 4096);
        // Of two processes, at one address.
        assert_eq!(peak(&trace, 1, metric), 10 << 20);
        assert_eq!(peak(&trace, PINNED_DEVICE.0, metric), 65536);
    }
    let origins = origins(&trace);
    let stack =
        "cudaMalloc_v3020 (/usr/lib/libcudart.so.12) < Trainer::step(int) (/home/user/train) < std::invoke<int, ";
    assert_eq!(origins[1], " in Device Static.weights_table");
    assert!(
        origins[2].starts_with(stack) && origins[2].ends_with("main (/home/user/train) in cudaMalloc"),
        "{}",
        origins[2]
    );
    assert_eq!(origins[2].matches("int, ").count(), 1000, "a name that takes several pages");
    let notes: Vec<&str> = trace.header.notes().collect();
    assert!(notes[0].starts_with("1 block was live before the first event"), "{notes:?}");
    assert!(notes[1].starts_with("1 event of pageable host memory left out"), "{notes:?}");
    assert!(notes[2].starts_with("1 call failed for lack of memory"), "{notes:?}");
    assert_eq!(trace.time_of(trace.events.ids().next().unwrap()), Some(5));
}

/// `bytes` with each `from` in them as `to`, which is as long.
fn replaced(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut changed = bytes.to_vec();
    let found: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(from.as_bytes())).collect();
    assert!(!found.is_empty(), "{from}");
    found.iter().for_each(|at| changed[*at..at + to.len()].copy_from_slice(to.as_bytes()));
    changed
}

#[test]
fn databases_of_other_programs_and_exports_without_memory_are_refused() {
    let bytes = file("nsys.sqlite");
    let without = replaced(&bytes, "CUDA_GPU_MEMORY_USAGE_EVENTS", "CUDA_GPU_ENERGY_USAGE_EVENTS");
    let error = refused(&without);
    assert!(error.contains("an export of Nsight Systems without memory events; record with"), "{error}");
    assert!(error.contains("--cuda-memory-usage=true"), "{error}");
    let error = refused(&replaced(&without, "StringIds", "Customers"));
    assert!(error.contains("an SQLite database that is not an export of Nsight Systems"), "{error}");
    let error = refused(&replaced(&bytes, "memoryOperationType", "memoryOperationKind"));
    assert!(error.contains("have no column 'memoryOperationType'"), "{error}");
    for length in [16, 99, 100, 5000, bytes.len() - 1] {
        let error = refused(&bytes[..length]);
        assert!(error.contains("the SQLite database is damaged"), "cut at {length}: {error}");
    }
}

#[test]
fn a_log_of_rmm_has_blocks_streams_and_times_and_marks_where_requests_failed() {
    let opened = open_bytes(&file("rmm.csv"), &mut go).unwrap();
    let trace = opened.trace;
    assert_eq!(opened.format.name(), "rmm");
    assert!(trace.problems.is_empty() && trace.is_complete(), "{:?}", trace.problems);
    assert_eq!(trace.allocator(DeviceId(0)), Allocator::Other);
    // 512 bytes from before the log.
    assert_eq!(peak(&trace, 0, Metric::Requested), 512 + 256 + (1 << 20) + 4096);
    assert_eq!(trace.blocks.stream, [2, 2, 2, 0].map(StreamId));
    let times: Vec<u64> = trace.events.time_ns.iter().map(|time| time / 1000).collect();
    assert_eq!(times, [0, 500, 1250, 2000, 2000, 3000, 3000, 1_001_000, 1_501_000, 1_501_000], "past midnight");
    assert_eq!(mark(&trace, 7), ("a request of 8 GiB failed", DeviceId(0)));
    assert!(trace.header.notes().any(|note| note.starts_with("1 request failed, as marks show")));
}

/// The text and the device of event `row`, a mark.
fn mark(trace: &Trace, row: u32) -> (&str, DeviceId) {
    let Subject::Mark(text) = trace.subject(EventId(row)) else { panic!("a mark") };
    (trace.tables.string(text), trace.events.device[row as usize])
}

#[test]
fn lines_that_are_no_lines_of_a_log_are_counted_and_named() {
    let mut text = file("rmm.csv");
    let whole = events(&open(&text)).len();
    text.extend(b"1979932,00:00:02.0,allocate,0x1,many,0x2\r\n\r\nThread,Time,Action,Pointer,Size,Stream\r\n");
    text.extend(b"1979932,00:00:02.5,allocate,0x30a900000,64,0x2\r\n1979932,00:00:03.25,allo");
    let trace = open(&text);
    assert_eq!(events(&trace).len(), whole + 1);
    let problem = trace.problems[0].to_string();
    assert!(
        problem.ends_with("line 9 does not have the format of RMM's log and was skipped; further such lines: 1"),
        "{problem}"
    );
    assert!(trace.is_partial());
    let long = [&text[..], &vec![b'x'; 1 << 20], b"\n1979932,00:00:04.0,free,0x30a900000,64,0x2\n"].concat();
    assert_eq!(events(&open(&long)).len(), whole + 3);
    let cut = gzip(&long);
    let trace = open(&cut[..cut.len() - 12]);
    assert!(trace.problems.iter().any(|problem| problem.what.contains("gzip data ends early")), "{:?}", trace.problems);
}

#[test]
fn a_log_of_nccl_has_what_each_place_of_its_source_allocates() {
    let opened = open_bytes(&file("nccl.log"), &mut go).unwrap();
    let trace = opened.trace;
    assert_eq!(opened.format.name(), "nccl");
    assert!(trace.problems.is_empty(), "{:?}", trace.problems);
    assert_eq!(trace.header.host, "node-01");
    assert!(trace.header.facts.contains(&("nccl".to_owned(), "2.27.3+cuda12.9".to_owned())));
    // The 10 MiB are freed where their address is allocated again.
    assert_eq!(trace.trust.repeated_allocs, 1);
    for metric in [Metric::Requested, Metric::Reserved] {
        assert_eq!(peak(&trace, 0, metric), 608 + (10 << 20));
        assert_eq!(peak(&trace, 1, metric), 608);
        assert_eq!(peak(&trace, PINNED_DEVICE.0, metric), 4096);
    }
    assert_eq!(
        origins(&trace),
        [
            "channel.cc:43 initChannel in Cuda CallocAsync",
            "channel.cc:43 initChannel in Cuda CallocAsync",
            "transport/p2p.cc:211 in Cuda Alloc",
            "alloc.h:120 in Cuda Host Alloc",
            "transport/p2p.cc:211 in Cuda Alloc",
        ]
    );
    // Nothing says how much was free, and others use the device too.
    assert_eq!(mark(&trace, 13), ("a request of 64 GiB failed", DeviceId(1)));
    assert!(trace.header.notes().any(|note| note.starts_with("1 request failed, as marks show")));
    let has_no_frees = |trace: &Trace| trace.header.notes().any(|note| note.starts_with("NCCL's log has no frees"));
    assert!(has_no_frees(&trace));
    for free in ["Cuda Free pointer 0x7f5208000000", "CUMEM Host Free Size 4096 pointer 0x7f5208000000"] {
        let free = format!("node-01:4242:4250 [0] NCCL INFO {free}\n");
        let trace = open(&[&file("nccl.log")[..], free.as_bytes()].concat());
        assert!(!has_no_frees(&trace), "{free}");
    }
}

#[test]
fn a_log_of_nccl_without_allocations_is_refused_with_what_to_set() {
    let error = refused(b"node-01:4242:4242 [0] NCCL INFO Bootstrap: Using eth0\n");
    assert!(error.contains("a log of NCCL without allocations; record it with NCCL_DEBUG=INFO"), "{error}");
}

#[test]
fn logs_of_several_machines_have_their_own_devices() {
    let line = |host: &str, bytes: u64| {
        format!("{host}:42:43 [0] NCCL INFO init.cc:305 Cuda Alloc Size {bytes} pointer 0x7f5200000000\n")
    };
    let trace = open((line("node-1", 100) + &line("node-2", 200)).as_bytes());
    assert_eq!((peak(&trace, 0, Metric::Requested), peak(&trace, 1, Metric::Requested)), (100, 200));
    assert_eq!(trace.devices[1].name, "node-2, device 0");
    assert_eq!(trace.trust.repeated_allocs, 0);
}

#[test]
fn reading_stops_where_the_listener_says_so() {
    let line = "1,00:00:00.0,allocate,0x30a000000,256,0x2\n";
    let text = format!("Thread,Time,Action,Pointer,Size,Stream\n{}", line.repeat(70_000));
    let mut stop = |_: highwater_snapshots::format::Progress| std::ops::ControlFlow::Break(());
    assert!(matches!(open_bytes(text.as_bytes(), &mut stop), Err(Error::Cancelled)));
    for bytes in [gunzip(&file("memory.prof")), file("nsys.sqlite")] {
        let mut heard = Vec::new();
        let mut stop = |now: highwater_snapshots::format::Progress| {
            heard.push(now);
            std::ops::ControlFlow::Break(())
        };
        assert!(matches!(open_bytes(&bytes, &mut stop), Err(Error::Cancelled)));
        assert!(matches!(open_stream(&bytes[..], &mut stop), Err(Error::Cancelled)));
        assert!(heard.len() == 2 && heard[0].bytes == bytes.len() as u64, "{heard:?}");
        assert!((1..=bytes.len() as u64).contains(&heard[0].bytes_read), "{heard:?}");
    }
}

#[test]
fn whatever_is_changed_in_a_file_it_opens_soundly_or_is_refused() {
    let mut state = 1_u64;
    let mut next = |most: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % most
    };
    let mut opened = 0;
    let files = [gunzip(&file("memory.prof")), file("nsys.sqlite"), file("rmm.csv"), file("nccl.log")];
    for (row, whole) in files.iter().enumerate() {
        for _ in 0..600 {
            let mut bytes = whole.clone();
            for _ in 0..=next(4) {
                let at = next(bytes.len());
                match next(4) {
                    0 => bytes[at] ^= 1 << next(8),
                    1 => bytes[at] = next(256) as u8,
                    2 => bytes.truncate(bytes.len().max(64) - next(32)),
                    _ => {
                        let (from, length) = (next(whole.len()), next(24));
                        let part = whole[from..whole.len().min(from + length)].to_vec();
                        let end = bytes.len().min(at + part.len());
                        bytes.splice(at..end, part);
                    }
                }
            }
            let Ok(found) = open_bytes(&bytes, &mut go) else { continue };
            opened += 1;
            // No file makes blocks of nothing, and what opens can be kept.
            assert!(found.trace.events.len() <= bytes.len() && found.trace.blocks.len() <= 1 << 21, "file {row}");
            let again = open(&write_trace(Vec::new(), &found.trace).unwrap());
            assert_eq!(again.events.len(), found.trace.events.len());
        }
    }
    assert!(opened > 300, "{opened} changed files open");
}
