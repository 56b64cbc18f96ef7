//! Tests that names of frames, modules and ranges in a file cannot inject lines or terminal sequences, or fill the
//! disk.

use highwater_notation::trace_from_text;
use highwater_snapshots::Trace;
use highwater_snapshots::error::Problem;
use highwater_snapshots::format::write_trace;

use crate::binary::{highwater, stdout};
use crate::sample::json;

/// A line break, the order of text turned round, a command to the terminal, and a formula.
const HOSTILE: &str = "=a\nb\u{202e}c\u{9b}2J\u{1b}]0;d\u{2066}";

/// A recording whose names are all `name`.
fn named(name: &str) -> Trace {
    let text = "step 0\nphase forward\nalloc a 1000 #op @scope < function < main\nalloc b 24 < main\nmark note";
    trace_from_text(text).unwrap().edited(|trace| {
        for known in &mut trace.tables.strings {
            if ["op", "scope", "function", "note"].contains(&known.as_str()) {
                name.clone_into(known);
            }
        }
        name.clone_into(&mut trace.header.program);
        trace.header.facts.push((name.to_owned(), name.to_owned()));
        trace.problems.push(Problem::new(name));
    })
}

/// A folder with a recording `step.snap` whose names are all `name`.
fn folder(name: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("step.snap"), write_trace(Vec::new(), &named(name)).unwrap()).unwrap();
    folder
}

const COMMANDS: [&str; 10] = [
    "info step.snap",
    "peak step.snap --by frame",
    "peak step.snap --by stack,scope",
    "peak step.snap --by op,scope,frame",
    "phases step.snap",
    "explain step.snap",
    "growth step.snap",
    "events step.snap --stacks",
    "diff step.snap step.snap --by frame",
    "check step.snap --max-peak 1B",
];

#[test]
fn names_stay_on_their_lines_and_away_from_the_terminal() {
    let (hostile, plain) = (folder(HOSTILE), folder("abcdefghi"));
    for command in COMMANDS {
        let shown = stdout(&highwater(hostile.path(), command));
        let is_hidden = |c: &char| *c != '\n' && highwater_snapshots::shown::is_hidden(*c);
        assert_eq!(shown.chars().find(is_hidden), None, "{command}: {shown}");
        let expected = stdout(&highwater(plain.path(), command));
        assert_eq!(shown.lines().count(), expected.lines().count(), "{command}: {shown}\n{expected}");
    }
    let folded = highwater(hostile.path(), "convert step.snap step.folded");
    assert!(folded.status.success());
    assert_eq!(std::fs::read_to_string(hostile.path().join("step.folded")).unwrap().lines().count(), 2);
}

#[test]
fn json_has_names_in_full_and_escapes_what_a_terminal_would_obey() {
    let hostile = folder(HOSTILE);
    for (command, key) in [("peak step.snap --by scope", "scope"), ("peak step.snap --by op", "op")] {
        let answer = stdout(&highwater(hostile.path(), &format!("{command} --json")));
        assert!(!answer.contains(['\u{202e}', '\u{9b}', '\u{1b}', '\u{2066}']), "{answer}");
        let parsed: serde_json::Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(parsed["groups"][0]["keys"][key], HOSTILE);
    }
    let events = stdout(&highwater(hostile.path(), "events step.snap --json"));
    assert!(!events.contains(['\u{202e}', '\u{9b}']), "{events}");
    assert_eq!(serde_json::from_str::<serde_json::Value>(&events).unwrap()["problems"][0], HOSTILE);
}

#[test]
fn a_very_long_name_is_cut_where_it_is_shown_and_whole_in_json() {
    let long = "name::".repeat(1 << 18);
    let folder = folder(&long);
    for command in COMMANDS {
        let shown = stdout(&highwater(folder.path(), command));
        assert!(shown.len() < 64 << 10, "{command}: {} bytes", shown.len());
    }
    assert_eq!(json(named(&long), "peak step.snap --by op --json")["groups"][0]["keys"]["op"], long);
}
