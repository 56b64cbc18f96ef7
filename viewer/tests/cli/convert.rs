//! Tests the files and messages of `highwater convert`.

use std::io::Read as _;

use expect_test::expect;
use highwater_notation::text_from_trace;
use highwater_snapshots::format::read_file;
use serde_json::{Value, json};

use crate::binary::{folder, highwater, names, refused, stderr, stdout};
use crate::sample::trace;

#[test]
fn a_recording_becomes_what_the_ending_says() {
    let (folder, _) = folder();
    let whole = ["a.snap", "a.pickle", "a.pkl", "a.json", "a.json.gz"];
    for name in whole.into_iter().chain(["a.folded", "a.perfetto-trace", "a.trace.json", "a.pb.gz"]) {
        let output = highwater(folder.path(), &format!("convert step.snap {name} --json"));
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&answer["file"], &answer["events"]), (&name.into(), &22.into()));
        assert_eq!(answer["bytes"], std::fs::metadata(folder.path().join(name)).unwrap().len());
        let lost = answer["lost"].as_array().unwrap();
        assert_eq!(lost.is_empty(), whole.contains(&name), "{lost:?}");
    }
    let bytes = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    assert_eq!(text_from_trace(&read_file(&folder.path().join("a.snap")).unwrap()), text_from_trace(&trace()));
    assert_eq!((&bytes("a.pickle")[..2], bytes("a.pickle") == bytes("a.pkl")), (&[0x80, 4][..], true));
    let snapshot: Value = serde_json::from_slice(&bytes("a.json")).unwrap();
    assert_eq!(snapshot["device_traces"][0].as_array().unwrap().len(), 15, "steps, phases and tags are no rows");
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(&bytes("a.json.gz")[..]).read_to_end(&mut unpacked).unwrap();
    assert_eq!(unpacked, bytes("a.json"));
    expect![[r#"
        (no stack) 4096
        main;load 1000
        main;train;backward 4096
        main;train;step 12288
    "#]]
    .assert_eq(&String::from_utf8(bytes("a.folded")).unwrap());
}

#[test]
fn the_answer_shows_what_was_written_and_what_to_do_with_it() {
    let (folder, _) = folder();
    let told = |words: &str| {
        let text = stdout(&highwater(folder.path(), words));
        // The size of a file depends on the compressor.
        let is_size = |word: &str| word.ends_with("iB");
        assert!(text.split_whitespace().any(|word| is_size(word.trim_matches(['(', ')', ':']))), "{text}");
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        text.lines().filter(|line| !line.contains("iB")).map(words).collect::<Vec<_>>().join("\n")
    };
    expect![[r#"

        file format size

        Nothing was lost.

        Next: highwater peak step.pickle or open it in PyTorch's viewer, pytorch.org/memory_viz"#]]
    .assert_eq(&told("convert step.snap step.pickle"));
    expect![[r#"
        Wrote my stacks.folded (78 B): 22 events.

        file format size
        my stacks.folded folded stacks 78 B


        Next: inferno-flamegraph 'my stacks.folded' > flames.svg or any flame graph program"#]]
    .assert_eq(&told("convert step.snap 'my stacks.folded'"));
}

#[test]
fn what_should_not_be_written_is_refused_before_anything_is_read() {
    let (folder, _) = folder();
    std::fs::create_dir(folder.path().join("folder.json")).unwrap();
    std::fs::write(folder.path().join("kept.trace.json"), "[]").unwrap();
    let cases = [
        ("convert step.snap", "OUT is missing"),
        ("convert step.snap -", "name a file"),
        (
            "convert step.snap step.csv",
            ".speedscope.json, .json, .folded, .pprof, .pb, .perfetto-trace, .pftrace, each optionally",
        ),
        ("convert step.snap step.parquet.gz", "already compressed"),
        ("convert step.snap ./step.snap", "the same file"),
        ("convert step.snap folder.json", "not a regular file"),
        ("convert gone.snap ./gone.csv", ".csv"),
        ("convert step.snap a.parquet --with trace.json", "--with needs an OUT"),
        ("convert step.snap a.html --with trace.json", "--with needs an OUT"),
        ("convert step.snap a.folded --with trace.json", "--with needs an OUT"),
        ("convert step.snap trace.json --with trace.json", "--with needs an OUT"),
        ("convert step.snap kept.trace.json --with kept.trace.json", "the same file"),
        ("convert step.snap a.trace.json --with gone.json", "--with gone.json"),
        ("convert gone.snap a.json", "gone.snap"),
        ("convert step.snap gone/a.json", "cannot write gone/a.json"),
    ];
    for (words, words_in_it) in cases {
        refused(folder.path(), words, words_in_it);
    }
    assert_eq!(names(folder.path()), ["folder.json", "kept.trace.json", "step.snap"]);
}

#[test]
fn a_file_that_is_there_is_replaced_and_a_link_leads_on() {
    let (folder, _) = folder();
    std::fs::write(folder.path().join("old.json"), "old").unwrap();
    assert_eq!(highwater(folder.path(), "convert step.snap old.json").status.code(), Some(0));
    let snapshot: Value = serde_json::from_slice(&std::fs::read(folder.path().join("old.json")).unwrap()).unwrap();
    assert_eq!(snapshot["allocator_settings"], json!({"expandable_segments": false}));
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("old.json", folder.path().join("link.json")).unwrap();
        std::fs::write(folder.path().join("old.json"), "old").unwrap();
        assert_eq!(highwater(folder.path(), "convert step.snap link.json").status.code(), Some(0));
        assert!(std::fs::symlink_metadata(folder.path().join("link.json")).unwrap().is_symlink());
        assert_ne!(std::fs::read(folder.path().join("old.json")).unwrap(), b"old");
        use std::os::unix::fs::PermissionsExt as _;
        let mode = |name: &str| std::fs::metadata(folder.path().join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode("old.json"), mode("step.snap"), "it has the rights of any new file");
    }
}

#[test]
fn a_part_of_a_recording_is_written_alone_and_without_the_source() {
    let (folder, _) = folder();
    let peak = |file: &str| {
        let output = highwater(folder.path(), &format!("peak {file} --json"));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let whole = peak("step.snap");
    let event = whole["event"].as_u64().unwrap();
    let output =
        highwater(folder.path(), &format!("convert step.snap part.snap --events 2..{} --no-stacks", event + 1));
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
    assert!(stdout(&output).contains(&format!("an excerpt: events 2 to {event} of")), "{}", stdout(&output));
    assert_eq!(peak("part.snap")["bytes"], whole["bytes"]);
    let text = stdout(&highwater(folder.path(), "peak part.snap --by stack"));
    assert!(!text.contains(".py") && !text.contains(".rs:"), "{text}");
    refused(folder.path(), "convert step.snap part.snap --events 5..5", "expected FROM..TO");
    refused(
        folder.path(),
        "convert step.snap part.snap --events 0..900000",
        "invalid range 0..900000 for --events: the recording has",
    );
}
