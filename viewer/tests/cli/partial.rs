//! Tests the output of every command for a truncated file, and the exit code if there is no answer.

use std::path::Path;

use crate::binary::{folder, highwater, stderr, stdout};

/// Every command that reads a recording, with what it needs.
const COMMANDS: [&str; 10] = [
    "info FILE",
    "peak FILE",
    "phases FILE",
    "explain FILE",
    "oom FILE",
    "events FILE",
    "check FILE --max-peak 1GiB",
    "diff step.snap FILE",
    "convert FILE out.json",
    "join FILE step.snap --out joined.snap",
];

/// Those that also need something of the build.
fn commands() -> Vec<&'static str> {
    let mut commands = COMMANDS.to_vec();
    commands.push("whatif FILE");
    if cfg!(feature = "gui") {
        commands.push("render FILE --out out.png");
    }
    if cfg!(feature = "parquet") {
        commands.push("convert FILE out.parquet");
    }
    commands
}

/// Asks every command about `file`: how each ended, and what it printed.
fn answers(folder: &Path, file: &str) -> Vec<(String, Option<i32>, String, String)> {
    let ask = |words: &str| {
        let words = words.replace("FILE", file);
        let output = highwater(folder, &words);
        for name in ["out.json", "out.png", "out.parquet", "joined.snap"] {
            let _ = std::fs::remove_file(folder.join(name));
        }
        (words, output.status.code(), stdout(&output), stderr(&output))
    };
    commands().into_iter().map(ask).collect()
}

#[test]
fn every_command_says_first_that_a_recording_was_cut_off_and_refuses_one_without_events() {
    let (folder, bytes) = folder();
    let (mut answered, mut whole, mut refused) = (0, 0, 0);
    for percent in [10, 30, 50, 70, 90, 99] {
        let cut = &bytes[..bytes.len() * percent / 100];
        std::fs::write(folder.path().join("cut.snap"), cut).unwrap();
        let events = highwater(folder.path(), "verify cut.snap --json");
        let events: serde_json::Value = serde_json::from_slice(&events.stdout).unwrap();
        let has_events = events["events"].as_u64().is_some_and(|count| count > 0);
        let suggests = stdout(&highwater(folder.path(), "verify cut.snap")).contains("Next: ");
        assert_eq!(suggests, has_events, "no command can answer anything of a file without events");
        // The end section says that no event is missing: a cut behind it costs the index alone.
        let is_whole = events["trust"]["unfinished"] == false;
        let lead = if is_whole { "Incomplete file: all " } else { "Incomplete recording: " };
        for (words, code, out, err) in answers(folder.path(), "cut.snap") {
            let what = format!("{words}, cut at {percent} %: {out}{err}");
            if has_events {
                // What was cut off may have exceeded a budget.
                let is_unconfirmed = words.starts_with("check ") && !is_whole;
                assert_eq!(code, Some(i32::from(is_unconfirmed)), "{what}");
                let first: Vec<&str> = out.lines().take(2).collect();
                assert!(first.iter().any(|line| line.contains(lead)), "{what}");
                answered += usize::from(!is_whole);
                whole += usize::from(is_whole);
            } else {
                assert_eq!((code, out.as_str()), (Some(2), ""), "{what}");
                assert!(err.starts_with("error: ") && err.contains("cut.snap"), "{what}");
                refused += 1;
            }
        }
    }
    let counts = [answered, whole, refused];
    assert!(counts.iter().all(|count| *count > 0), "cut within the events, behind and before them: {counts:?}");
}

#[test]
fn a_cut_pickle_and_cut_gzip_data_are_refused_or_stated_to_be_incomplete_by_every_command() {
    let (folder, _) = folder();
    for name in ["whole.pickle", "whole.pickle.gz", "whole.snap.gz"] {
        if name == "whole.snap.gz" {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            std::io::Write::write_all(&mut gzip, &std::fs::read(folder.path().join("step.snap")).unwrap()).unwrap();
            std::fs::write(folder.path().join(name), gzip.finish().unwrap()).unwrap();
        } else {
            let output = highwater(folder.path(), &format!("convert step.snap {name}"));
            assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        }
        let bytes = std::fs::read(folder.path().join(name)).unwrap();
        let cut_name = name.replace("whole", "cut");
        for percent in [40, 95] {
            std::fs::write(folder.path().join(&cut_name), &bytes[..bytes.len() * percent / 100]).unwrap();
            for (words, code, out, err) in answers(folder.path(), &cut_name) {
                let what = format!("{words}, {name} cut at {percent} %: {out}{err}");
                match code {
                    Some(1) if words.starts_with("check ") => assert!(out.contains("unconfirmed"), "{what}"),
                    Some(0) => assert!(out.lines().take(2).any(|line| line.contains("Incomplete recording")), "{what}"),
                    Some(2) => assert!(out.is_empty() && err.contains(&cut_name), "{what}"),
                    _ => panic!("{what}"),
                }
            }
        }
    }
}
