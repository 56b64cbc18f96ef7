//! Tests that every public function opens every supported file format, and rejects other files.

use std::io::{Read, Write as _};
use std::ops::ControlFlow;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use highwater_notation::trace_from_text;
use highwater_pytorch::open::{FileFormat, open_bytes, open_file, open_stream};
use highwater_snapshots::format::{Progress, write_trace};
use highwater_snapshots::{Error, Trace};

use crate::made::{events, go, gzip, page, pickle, snapshot};
use crate::tools::file;

/// A file of every kind, with its name.
fn files() -> Vec<(&'static str, Vec<u8>)> {
    let trace = trace_from_text("alloc a 1000\nalloc b 20\nfree a").unwrap();
    let mut marked = b"\xef\xbb\xbf\n ".to_vec();
    marked.extend(snapshot().to_string().as_bytes());
    let plain = vec![
        ("snap", write_trace(Vec::new(), &trace).unwrap()),
        ("pickle", pickle(&snapshot(), 2)),
        ("pickle", pickle(&snapshot(), 3)),
        ("pickle", pickle(&snapshot(), 4)),
        ("pickle", pickle(&snapshot(), 5)),
        ("json", snapshot().to_string().into_bytes()),
        ("json", marked),
        ("html", page(&[("snapshot.pickle", &pickle(&snapshot(), 4))]).into_bytes()),
        ("nsys", file("nsys.sqlite")),
        ("rmm", file("rmm.csv")),
        ("nccl", file("nccl.log")),
    ];
    let names = ["snap+gzip", "pickle+gzip", "json+gzip", "html+gzip", "nsys+gzip", "rmm+gzip", "nccl+gzip"];
    let zipped = plain.iter().map(|(name, bytes)| {
        let name = names.iter().find(|zipped| zipped.starts_with(name)).unwrap();
        (*name, gzip(bytes))
    });
    let zipped: Vec<_> = zipped.collect();
    plain.into_iter().chain(zipped).collect()
}

/// Gives a byte or two at a time, as a slow pipe does.
struct Drops<'a>(&'a [u8]);

impl Read for Drops<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let most = out.len().min(2);
        self.0.read(&mut out[..most])
    }
}

#[test]
fn every_kind_of_file_opens_from_memory_from_a_stream_and_from_disk() {
    let folder = std::env::temp_dir().join(format!("highwater-open-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for (name, bytes) in files() {
        let opened = open_bytes(&bytes, &mut go).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(opened.format.name(), name);
        assert!(!opened.trace.events.is_empty(), "{name}");
        let path = folder.join("file");
        std::fs::write(&path, &bytes).unwrap();
        let others = [
            open_file(&path, &mut go).unwrap(),
            open_stream(&bytes[..], &mut go).unwrap(),
            open_stream(Drops(&bytes), &mut go).unwrap(),
        ];
        for other in others {
            assert_eq!(other.format, opened.format);
            assert_eq!(events(&other.trace), events(&opened.trace), "{name}");
            assert_eq!(other.trace.problems, opened.trace.problems, "{name}");
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Why `bytes` do not open, however they come.
fn refused(bytes: &[u8]) -> String {
    let error = open_bytes(bytes, &mut go).unwrap_err().to_string();
    assert_eq!(open_stream(bytes, &mut go).unwrap_err().to_string(), error);
    error
}

#[test]
fn what_is_no_recording_is_named_with_what_is_read() {
    let error = refused(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR");
    assert!(error.contains("a PNG picture") && error.contains(".snap") && error.contains("PyTorch"), "{error}");
    assert!(refused(b"Dear all").contains("text (\"Dear all\")"));
    assert!(matches!(open_bytes(b"", &mut go), Err(Error::Empty)));
    assert!(matches!(open_stream(&b""[..], &mut go), Err(Error::Empty)));
    assert!(refused(b"\x89HWS").contains("first eight bytes"));
    assert!(refused(&b"\x89HWS\r\n\x1a\n"[..]).contains("before anything was recorded"));
    assert!(refused(b"PK\x03\x04....").contains("zip archive"));
    assert!(
        refused("\u{feff}{".encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>().as_slice())
            .contains("UTF-16")
    );
    assert!(refused(&gzip(b"Dear all")).contains("gzip data that contains text (\"Dear all\")"));
    let twice = refused(&gzip(&gzip(b"{}")));
    assert!(twice.contains("gzip data that contains gzip-compressed data; decompress it first"), "{twice}");
    assert!(refused(&gzip(b"")).contains("empty gzip data"));
}

#[test]
fn files_that_are_opened_by_mistake_are_named_with_what_to_do() {
    let kineto = br#"{"schemaVersion": 1, "deviceProperties": [], "traceEvents": [{"ph": "X", "name": "aten::mm"}]}"#;
    let timeline = format!("[{}, {}]", "[1, 2]", "[[0, 5], [0, 7]]");
    let legacy = b"<!DOCTYPE html>\n<script type=\"module\">\nlet alloc_data = {\"elements\": []}\n</script>";
    let picture =
        b"<html><head><title>GPU Memory Timeline HTML</title></head><body><img src='data:image/png;base64,iVBO'>";
    let cases: [(&[u8], &str, &str); 7] = [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "Git LFS pointer", "git lfs pull"),
        (kineto, "torch.profiler", "_record_memory_history"),
        (&kineto[..60], "torch.profiler", "_record_memory_history"),
        (br#"[{"ph": "X", "ts": 1, "name": "aten::mm"}]"#, "a profiler's events", "_record_memory_history"),
        (timeline.as_bytes(), "export_memory_timeline", "_record_memory_history"),
        (legacy, "a page of trace_plot of PyTorch 2.0", "_dump_snapshot"),
        (picture, "a page of export_memory_timeline", "_record_memory_history"),
    ];
    for (bytes, found, advice) in cases {
        for error in [refused(bytes), refused(&gzip(bytes))] {
            assert!(
                error.starts_with("not a recording: ") && error.contains(found) && error.contains(advice),
                "{error}"
            );
        }
    }
}

#[test]
fn pickles_of_other_things_are_named_by_what_they_hold() {
    use serde_json::json;
    let cases = [
        (json!([1, 2]), "a pickled list of other values, the first of which is an integer"),
        (json!([{"loss": 1}]), "a pickled list of other values, the first of which is a dict"),
        (json!(["a"]), "the first of which is a string"),
        (json!([[1]]), "the first of which is a list"),
        (
            json!({"model": 1, "optimizer": [], "epoch": 3}),
            "a pickled dict with the keys 'model', 'optimizer', 'epoch'",
        ),
        (json!({"rank0": snapshot()}), "a pickled dict with a snapshot in it, which must be saved alone"),
        (json!([snapshot(), snapshot()]), "a pickled list of snapshots, each of which must be saved alone"),
        (
            json!({"text": "hello", "segments": [{"id": 0, "start": 0.5}]}),
            "whose 'segments' are a list of other values",
        ),
        (json!({"action": "left", "reward": 1}), "a pickled dict that may be one part of a snapshot"),
        (json!([{"action": "left", "reward": 1}]), "a pickled list of values that may be parts of a snapshot"),
        (json!({}), "an empty pickled dict"),
        (json!("text"), "a pickle of a string"),
        (json!(3), "a pickle of an integer"),
    ];
    for (value, found) in cases {
        for protocol in [2, 4] {
            let error = refused(&pickle(&value, protocol));
            assert!(error.contains(found) && error.contains("_dump_snapshot"), "{error}");
        }
    }
    for empty in [json!([]), json!({"segments": [], "device_traces": []}), json!({"segments": []})] {
        assert!(open_bytes(&pickle(&empty, 4), &mut go).unwrap().trace.events.is_empty(), "nothing was recorded");
    }
}

#[test]
fn pickles_of_other_protocols_are_refused_by_their_number() {
    for protocol in [0_u8, 1, 6, 7] {
        let bytes = pickle(&snapshot(), protocol);
        assert!(
            refused(&bytes)
                .contains(&format!("pickle of protocol {protocol}, but only protocols 2 to 5 are supported"))
        );
        assert!(refused(&gzip(&bytes)).contains(&format!("protocol {protocol},")));
    }
    assert!(refused(b"(dp0\nS'segments'\np1\n(lp2\ns.").contains("protocol 0"));
    assert!(refused(b"}q\0U\x08segmentsq\x01]q\x02s.").contains("protocol 1"));
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = open_file(Path::new("/no/such/folder/a.pickle"), &mut go).unwrap_err().to_string();
    assert!(error.contains("/no/such/folder/a.pickle"), "{error}");
    let error = open_file(&std::env::temp_dir(), &mut go).unwrap_err().to_string();
    assert!(error.contains(&*std::env::temp_dir().to_string_lossy()), "{error}");
}

/// The system fails after some bytes.
struct Failing<'a>(&'a [u8]);

impl Read for Failing<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        match self.0.read(out)? {
            0 => Err(std::io::Error::other("the cable is cut")),
            taken => Ok(taken),
        }
    }
}

#[test]
fn a_source_that_fails_is_reported_as_it_is_and_never_taken_for_an_end() {
    for (name, bytes) in files() {
        for length in [0, 1, 5, 100, bytes.len() / 2] {
            let error = open_stream(Failing(&bytes[..length]), &mut go).unwrap_err();
            assert!(
                matches!(error, Error::Io { .. }) && error.to_string().contains("the cable is cut"),
                "{name}: {error}"
            );
        }
    }
}

#[test]
fn gzip_data_that_is_cut_says_so() {
    for (name, bytes) in files().into_iter().filter(|(name, _)| name.ends_with("gzip")) {
        for length in 2..bytes.len() {
            match open_bytes(&bytes[..length], &mut go) {
                Err(error) => {
                    assert!(
                        error.to_string().contains("the gzip data ends early: copy the file again"),
                        "{name}: {error}"
                    );
                }
                // All of the content came, and its checksum did not.
                Ok(opened) => {
                    let expected = opened.trace.problems.iter().any(|problem| problem.what.contains("ends early"));
                    assert!(expected, "{name} at {length}");
                }
            }
        }
    }
}

#[test]
fn gzip_data_whose_checksum_does_not_fit_is_reported() {
    for (name, mut bytes) in files().into_iter().filter(|(name, _)| name.ends_with("gzip")) {
        let end = bytes.len();
        bytes[end - 8] ^= 1;
        let expected = match open_bytes(&bytes, &mut go) {
            Ok(opened) => opened.trace.problems.iter().any(|problem| problem.what.contains("gzip data is damaged")),
            Err(error) => error.to_string().contains("gzip data is damaged"),
        };
        assert!(expected, "{name}");
    }
}

#[test]
fn a_compressed_recording_that_is_cut_opens_up_to_the_cut() {
    let text: String = (0..20_000).map(|block| format!("alloc b{block} {}\n", block * 7 % 1001)).collect();
    let whole = trace_from_text(&text).unwrap();
    let bytes = gzip(&write_trace(Vec::new(), &whole).unwrap());
    let opened = open_bytes(&bytes[..bytes.len() - 40], &mut go).unwrap();
    assert!(!opened.trace.events.is_empty());
    assert!(opened.trace.problems.iter().any(|problem| problem.what.contains("gzip data ends early")));
}

/// A gzip file of `start` and so many zeros.
fn bomb(start: &[u8], zeros: u64) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), Compression::best());
    out.write_all(start).unwrap();
    std::io::copy(&mut std::io::repeat(0).take(zeros), &mut out).unwrap();
    out.finish().unwrap()
}

#[test]
fn gzip_data_that_expands_without_end_is_refused_or_passed_over() {
    let recording = write_trace(Vec::new(), &Trace::default()).unwrap();
    let error = refused(&bomb(&recording, 80 << 20));
    assert!(error.contains("expands to more than 64 times its size"), "{error}");
    let bytes = pickle(&snapshot(), 4);
    let expected = events(&open_bytes(&bytes, &mut go).unwrap().trace);
    let opened = open_bytes(&bomb(&bytes, 80 << 20), &mut go).unwrap();
    assert_eq!(events(&opened.trace), expected);
}

#[test]
fn several_gzip_members_are_one_file() {
    let bytes = pickle(&snapshot(), 4);
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let joined = [gzip(first), gzip(second)].concat();
    let [joined, whole] = [joined, bytes].map(|bytes| events(&open_bytes(&bytes, &mut go).unwrap().trace));
    assert_eq!(joined, whole);
}

#[test]
fn progress_goes_up_to_the_length_and_a_stop_is_heard() {
    let mut value = snapshot();
    let event = value["device_traces"][0][2].clone();
    value["device_traces"][0] = vec![event; 6_000].into();
    let (bytes, text) = (pickle(&value, 4), value.to_string());
    let held = page(&[("a", &bytes)]);
    let files = [("pickle", &bytes[..]), ("json", text.as_bytes()), ("html", held.as_bytes())];
    for (name, bytes) in files {
        for (bytes, length) in [(bytes.to_vec(), bytes.len()), (gzip(bytes), 0)] {
            for is_stream in [false, true] {
                let mut heard: Vec<Progress> = Vec::new();
                let mut stop_at = usize::MAX;
                let run = |heard: &mut Vec<Progress>, stop_at: &mut usize| {
                    let mut listener = |now: Progress| {
                        heard.push(now);
                        if heard.len() > *stop_at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                    };
                    let opened = if is_stream {
                        open_stream(&bytes[..], &mut listener)
                    } else {
                        open_bytes(&bytes, &mut listener)
                    };
                    opened.map(|opened| opened.format)
                };
                let format: FileFormat = run(&mut heard, &mut stop_at).unwrap();
                assert!(format.name().starts_with(name));
                assert!(!heard.is_empty(), "{name} {is_stream}");
                assert!(
                    heard
                        .windows(2)
                        .all(|pair| pair[0].bytes_read <= pair[1].bytes_read && pair[0].events <= pair[1].events)
                );
                assert!(heard.iter().all(|now| now.bytes_read <= bytes.len() as u64));
                assert!(heard.iter().any(|now| now.events > 0));
                if length > 0 {
                    assert!(heard.windows(2).all(|pair| pair[1].bytes_read - pair[0].bytes_read <= 3 << 20), "{name}");
                }
                let known = if is_stream { u64::MAX } else { bytes.len() as u64 };
                assert!(heard.iter().all(|now| now.bytes == known), "{name} {is_stream} {:?}", heard[0]);
                let mut again = Vec::new();
                assert!(matches!(run(&mut again, &mut 0), Err(Error::Cancelled)), "{name} {is_stream}");
                assert_eq!(again.len(), 1, "who stopped is not asked again");
            }
        }
    }
}
