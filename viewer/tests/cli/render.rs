//! Tests the pictures and messages of `highwater render`.

use std::path::Path;

use highwater_snapshots::format::write_trace;
use serde_json::Value;

use crate::binary::{folder, highwater, names, refused, stderr, stdout};

fn drawn(folder: &Path, words: &str) -> Value {
    let output = highwater(folder, words);
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{words}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_picture_is_drawn_and_reported() {
    let (folder, _) = folder();
    let told = drawn(folder.path(), "render step.snap --out a.png --size 800x500 --json");
    let length = std::fs::metadata(folder.path().join("a.png")).unwrap().len();
    let expected = serde_json::json!({
        "file": "a.png", "device": 0, "width": 800, "height": 500, "view": "timeline", "bytes": length,
        "schema_version": 1
    });
    assert_eq!(told, expected);
    let reader = png::Decoder::new(std::io::BufReader::new(std::fs::File::open(folder.path().join("a.png")).unwrap()));
    let reader = reader.read_info().unwrap();
    assert_eq!((reader.info().width, reader.info().height), (800, 500));
    let output = highwater(folder.path(), "render step.snap --out b.SVG --theme dark --by scope:3 --stack-by colour");
    assert!(stdout(&output).starts_with("Wrote b.SVG (1600 x 900 pixels, "), "{}", stdout(&output));
    let text = std::fs::read_to_string(folder.path().join("b.SVG")).unwrap();
    assert!(text.contains("width=\"1600\" height=\"900\"") && text.contains(">layer</text>"), "{text}");
    assert!(text.contains(">Peak 20.98 KiB</text>"));
    assert_eq!(names(folder.path()), ["a.png", "b.SVG", "step.snap"]);
}

#[test]
fn options_change_what_is_drawn() {
    let (folder, _) = folder();
    let svg = |options: &str| {
        drawn(folder.path(), &format!("render step.snap --out a.svg --json {options}"));
        std::fs::read_to_string(folder.path().join("a.svg")).unwrap()
    };
    let plain = svg("");
    assert!(plain.contains("viewBox=\"0 0 1600 900\"") && plain.contains(">step 1</text>"));
    assert!(svg("--scale 2").contains("viewBox=\"0 0 800 450\""));
    assert!(!svg("--from 1 --to 6").contains(">step 1</text>"));
    assert!(svg("--metric reserved").contains("At the peak of reserved"));
    assert!(svg("--axis time").contains("Requested memory by time"));
    assert!(svg("--by stack").contains("coloured by line (frame)"));
    let [by_phase, by_category] = ["--view table --by phase", "--view table"].map(&svg);
    assert!(by_phase.contains(">forward</text>") && !by_category.contains(">forward</text>"), "{by_phase}");
    let planned = svg("--view plan --budget 8GiB");
    assert!(planned.contains(">Fits in 8 GiB<"), "{planned}");
    let explained = svg("--view explain");
    assert!(explained.contains(">Peak 20.98 KiB</text>") && explained.contains(">New peak at</text>"));
    assert!(svg("--where 'category=activation size>=1KiB'").contains("in colour: category=activation size&gt;=1KiB"));
}

#[test]
fn two_recordings_are_drawn_side_by_side_with_what_makes_the_difference() {
    let (folder, _) = folder();
    let text =
        "step 0\nphase forward\nalloc a 3000 activation #linear @net.fc\nphase backward\nfree a\nalloc g 9000 gradient";
    let trace = highwater_notation::trace_from_text(text).unwrap();
    std::fs::write(folder.path().join("other.snap"), write_trace(Vec::new(), &trace).unwrap()).unwrap();
    let told = drawn(folder.path(), "render step.snap other.snap --out d.png --view diff --size 900x700 --json");
    assert_eq!((&told["file"], &told["width"], &told["height"]), (&"d.png".into(), &900.into(), &700.into()));
    assert_eq!(told["view"], "diff");
    let svg = |options: &str| {
        drawn(folder.path(), &format!("render step.snap other.snap --out d.svg --view diff --json {options}"));
        std::fs::read_to_string(folder.path().join("d.svg")).unwrap()
    };
    let plain = svg("");
    let sentence = "other.snap peaks 12.19 KiB lower than step.snap";
    for words in ["step.snap (A) and other.snap (B)", sentence, "20.98 KiB", "only in A"] {
        assert!(plain.contains(words), "{words} in {plain}");
    }
    assert!(plain.matches(">Peak ").count() == 2 && plain.contains(">gradient</text>"));
    assert!(svg("--at end").contains("Aligned at the start of step"));
    assert!(svg("--by scope,op").contains(">Scope</text>"));
    assert!(svg("--where category=gradient").contains("only blocks with category=gradient"));
    let output = highwater(folder.path(), "render step.snap other.snap --out d.png --view diff");
    assert!(stdout(&output).starts_with("Wrote two recordings side by side to d.png"), "{}", stdout(&output));
    assert!(stdout(&output).contains("Next: highwater diff step.snap other.snap"));
    let output = highwater(folder.path(), "render step.snap --out d.png --view diff --at peak --at-b end");
    assert!(stdout(&output).starts_with("Wrote two moments side by side"), "{}", stderr(&output));
}

#[test]
fn what_cannot_be_drawn_is_refused_and_leaves_nothing() {
    let (folder, _) = folder();
    std::fs::create_dir(folder.path().join("folder.png")).unwrap();
    let cases = [
        ("step.snap", "--out"),
        ("step.snap --out a.jpg", ".png or .svg"),
        ("step.snap --out picture", ".png or .svg"),
        ("step.snap --out -", "name a file"),
        ("step.snap --out folder.png", "not a regular file"),
        ("step.snap --out missing/a.png", "cannot write missing/a.png"),
        ("step.snap --out a.png --size 99999x10", "too large"),
        ("step.snap --out a.png --size 16384x16384", "200 million"),
        ("step.snap --out a.png --size 100x100", "too small"),
        ("step.snap --out a.png --size wide", "1600x900"),
        ("step.snap --out a.png --scale 0", "from 0.5 to 8"),
        ("step.snap step.snap --out a.png", "only --view diff has two sides"),
        ("step.snap --out a.png --at-b end", "--at-b: only --view diff"),
        ("step.snap --out a.png --at peak", "only --view diff supports such moments"),
        ("step.snap --out a.png --by size,pool", "--by: 'size,pool': expected one key for colours"),
        ("step.snap step.snap --out a.png --view diff --at 7", "peak, end, step:N and step-end:N"),
        ("step.snap step.snap --out a.png --view diff --at step:9", "step:9 of A: the recording has no such step"),
        ("step.snap step.snap --out a.png --view diff --by scope:0,op", "as in scope:2"),
        ("step.snap step.snap --out a.png --view diff --from 3", "shows all of both"),
        ("step.snap step.snap --out a.png --view diff --device-b 7", "B: --device 7: the recording has no such device"),
        ("step.snap missing.snap --out a.png --view diff", "missing.snap"),
        ("step.snap --out a.png --view Timeline", "views are: timeline"),
        ("step.snap --out a.png --budget 8GiB", "--budget: only --view plan has a budget"),
        ("step.snap --out a.png --by colour", "keys are category"),
        ("step.snap --out a.png --view table --by op,size,pool", "one or two keys, not 3"),
        ("step.snap --out a.png --theme sepia", "light"),
        ("step.snap --out a.png --device 7", "no such device"),
        ("step.snap --out a.png --metric device_used", "no samples"),
        ("step.snap --out a.png --from 22", "from 0 to 21"),
        ("step.snap --out a.png --from 5 --to 4", "the first event comes after the last"),
        ("step.snap --out a.png --where colour=red", "keys are category"),
        ("missing.snap --out a.png", "missing.snap"),
    ];
    for (words, words_in_it) in cases {
        refused(folder.path(), &format!("render {words}"), words_in_it);
    }
    std::fs::rename(folder.path().join("step.snap"), folder.path().join("step.png")).unwrap();
    refused(folder.path(), "render step.png --out ./step.png", "that is the recording");
    assert_eq!(names(folder.path()), ["folder.png", "step.png"]);
}

#[test]
fn recordings_with_next_to_nothing_in_them_are_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let texts = ["", "baseline w 100 parameter", "alloc a 0", "step 0", "alloc a 18446744073709551615"];
    for (number, text) in texts.iter().enumerate() {
        let trace = highwater_notation::trace_from_text(text).unwrap();
        let file = format!("{number}.snap");
        std::fs::write(folder.path().join(&file), write_trace(Vec::new(), &trace).unwrap()).unwrap();
        drawn(folder.path(), &format!("render {file} --out a.png --size 640x400 --axis event --json"));
        if trace.has_times() {
            drawn(folder.path(), &format!("render {file} --out a.png --size 640x400 --axis time --json"));
        }
    }
}
