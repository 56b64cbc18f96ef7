//! Tests `whatif` replays of recordings from the command line.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use highwater_analysis::{Filter, Source};
use highwater_app::answers::prediction::{Change, Changed, SizePart};
use highwater_app::answers::replays::predict;
use highwater_snapshots::format::{Windows, read_file};
use serde_json::Value;

use crate::binary::{highwater, highwater_with, refused, stderr, stdout};

/// A model of a few MiB, so that segments of both pools come into it.
const MODEL: &str = "record gpt2 --batch 2 --seq 64 --width 128 --layers 2 --heads 2 --vocab 500 --steps 2";

fn object(folder: &Path, words: &str) -> Value {
    let output = highwater(folder, words);
    assert_eq!(output.status.code(), Some(0), "{words}: {}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{words}: {error}: {}", stdout(&output)))
}

/// A folder with a recording `run.snap`.
fn recorded() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    object(folder.path(), &format!("{MODEL} --out run.snap --json"));
    folder
}

fn peaks(value: &Value) -> [u64; 4] {
    ["requested", "allocated", "active", "reserved"].map(|metric| value[metric]["bytes"].as_u64().unwrap())
}

#[test]
fn with_nothing_changed_the_replay_gives_what_was_measured_and_common_settings_are_tried() {
    let folder = recorded();
    let answer = object(folder.path(), "whatif run.snap --json");
    assert_eq!(answer["replayed"], answer["measured"]);
    assert_eq!((&answer["divergence"], &answer["changed"], &answer["oom"]), (&Value::Null, &Value::Null, &Value::Null));
    let info = object(folder.path(), "info run.snap --json");
    assert_eq!(peaks(&answer["measured"]), peaks(&info["devices"][0]["peaks"]));
    let tried: Vec<&str> =
        answer["tried"].as_array().unwrap().iter().map(|one| one["alloc_conf"].as_str().unwrap()).collect();
    assert_eq!(tried[0], "expandable_segments:True");
    assert!(
        tried[1..].iter().all(|conf| conf.starts_with("roundup_power2_divisions:")),
        "no block is large: {tried:?}"
    );
    let text = stdout(&highwater(folder.path(), "whatif run.snap"));
    assert!(
        text.contains("places every block at its recorded address") && text.contains("as recorded (default)"),
        "{text}"
    );
}

#[test]
fn other_settings_are_predicted_as_a_run_with_them_measures() {
    let folder = recorded();
    for conf in ["expandable_segments:True", "roundup_power2_divisions:2", "large_segment_size_mb:32"] {
        object(folder.path(), &format!("{MODEL} --alloc-conf {conf} --out other.snap --json"));
        let real = object(folder.path(), "info other.snap --json");
        let predicted = object(folder.path(), &format!("whatif run.snap --alloc-conf {conf} --json"));
        assert_eq!(peaks(&predicted["changed"]), peaks(&real["devices"][0]["peaks"]), "{conf}");
        let back = object(folder.path(), "whatif other.snap --alloc-conf default --json");
        assert_eq!(peaks(&back["changed"]), peaks(&predicted["measured"]), "back from {conf}");
    }
}

#[test]
fn a_device_that_is_too_small_is_reported_with_the_request_that_fails_and_what_would_do() {
    let folder = recorded();
    let answer = object(folder.path(), "whatif run.snap --capacity 8MiB --json");
    let oom = &answer["oom"];
    assert!(oom["event"].is_u64() && oom["requested_bytes"].as_u64().unwrap() > 0, "{oom}");
    assert!(oom["reserved_bytes"].as_u64().unwrap() <= 8 << 20, "{oom}");
    let suffices = oom["suffices_bytes"].as_u64().unwrap();
    let fits = object(folder.path(), &format!("whatif run.snap --capacity {suffices} --json"));
    assert_eq!((&fits["oom"], peaks(&fits["changed"])[3]), (&Value::Null, suffices));
    let text = stdout(&highwater(folder.path(), "whatif run.snap --capacity 8MiB")).replace('\n', " ");
    let enough = "A device of 12 MiB, the recorded peak of reserved memory, is large enough.";
    assert!(text.starts_with("Does not fit with 8 MiB of memory: ") && text.contains(enough), "{text}");
    let text = stdout(&highwater(folder.path(), &format!("whatif run.snap --capacity {suffices}")));
    assert!(text.starts_with("Fits. "), "{text}");
}

/// The size that stands in `text` after `before`.
fn size_after<'a>(text: &'a str, before: &str) -> &'a str {
    let rest = text.split_once(before).unwrap_or_else(|| panic!("{before} is not in {text}")).1;
    let (number, rest) = rest.split_once(' ').unwrap();
    let unit = rest.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap();
    &text[text.len() - rest.len() - number.len() - 1..text.len() - rest.len() + unit.len()]
}

#[test]
fn a_size_that_is_stated_to_be_large_enough_is() {
    // 1 GiB and 14 MiB: two decimals of GiB round it down.
    let mib = 1_u64 << 20;
    let text = format!("alloc a {}\nalloc b {}\nfree a\nfree b\n", 1024 * mib, 14 * mib);
    let of = |words: &str| {
        let trace = highwater_notation::trace_from_text(&text).unwrap();
        crate::sample::answer(trace, words).unwrap().replace('\n', " ")
    };
    let told = of("whatif a.snap --capacity 1GiB");
    let size = size_after(&told, "A device of ");
    assert_eq!(size, "1.02 GiB", "{told}");
    assert!(of(&format!("whatif a.snap --capacity '{size}'")).starts_with("Fits."), "{told}");
}

#[test]
fn without_a_change_the_settings_that_help_come_first() {
    let folder = recorded();
    let text = stdout(&highwater(folder.path(), "whatif run.snap"));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "None of the tried settings lowers the peak of reserved memory, 12 MiB.");
    let mib = 1_u64 << 20;
    let trace = format!("alloc a {}\nfree a\nalloc b {}\nfree b\n", 30 * mib, 31 * mib);
    let trace = highwater_notation::trace_from_text(&trace).unwrap();
    let none = crate::sample::answer(trace.clone(), "whatif a.snap").unwrap();
    assert!(none.starts_with("No settings are tried: the allocator of the recording has none.\n"), "{none}");
    let trace = trace.edited(|trace| trace.header.recorder = "PyTorch 2.9".to_owned());
    let helps = crate::sample::answer(trace, "whatif a.snap").unwrap();
    let first = "roundup_power2_divisions:4 lowers the peak of reserved memory by 30 MiB, from 62 MiB to 32 MiB; \
                 expandable_segments:True by 22 MiB.\n";
    assert!(helps.starts_with(first), "{helps}");
    assert!(lines[1].contains("places every block at its recorded address"), "{text}");
}

/// Large blocks are freed and split by small requests that stay, so that the next large block needs another segment.
#[test]
fn the_limit_of_splitting_that_helps_is_named_with_its_value() {
    let mib = 1_u64 << 20;
    let mut text = String::new();
    for round in 0..6 {
        text += &format!("alloc large{round} {}\nfree large{round}\nalloc small{round} {}\n", 640 * mib, 40 * mib);
    }
    let trace = highwater_notation::trace_from_text(&text)
        .unwrap()
        .edited(|trace| trace.header.recorder = "PyTorch 2.9".to_owned());
    let told = crate::sample::answer(trace, "whatif a.snap").unwrap();
    let reserved = format!("{}.00 MiB", 640 + 6 * 40);
    assert!(told.contains("max_split_size_mb:512"), "{told}");
    let row = told.lines().find(|line| line.trim_start().starts_with("max_split_size_mb:512 ")).unwrap();
    assert!(row.contains(&reserved), "{row} is not {reserved}");
}

/// A program that catches the failure and goes on would have gone on differently.
#[test]
fn a_failed_request_that_succeeds_leaves_open_what_follows_even_if_the_program_recovered() {
    let mib = 1_u64 << 20;
    let text = format!(
        "segment_alloc 0x0 {0}\nalloc a {0} large\noom {0} free=0\nfree a\nalloc b {0} large\nalloc c 1024\n",
        64 * mib
    );
    let trace = || highwater_notation::trace_from_text(&text).unwrap();
    let answer = crate::sample::json(trace(), "whatif a.snap --capacity 1GiB --json");
    assert_eq!((&answer["fits"], &answer["oom"]), (&Value::Null, &Value::Null), "{answer}");
    let told = crate::sample::answer(trace(), "whatif a.snap --capacity 1GiB").unwrap();
    assert!(
        told.starts_with(
            "Gets past the recorded failures with 1 GiB of memory; without them the program would have continued differently."
        ),
        "{told}"
    );
}

#[test]
fn a_changed_recording_is_written_and_compares_by_just_the_change() {
    let folder = recorded();
    let words = "whatif run.snap --without category=gradient --scale 1/2:category=activation --out changed.snap --json";
    let answer = object(folder.path(), words);
    let unwritten =
        stdout(&highwater(folder.path(), &words.replace(" --out changed.snap --json", " --categories guess")));
    let next = "Next: highwater whatif run.snap --out changed.snap --without category=gradient \
                --scale 1/2:category=activation --categories guess   ";
    assert!(unwritten.contains(next), "{unwritten}");
    assert!(
        unwritten.contains(" allocations are left out (") && unwritten.contains(" in all as recorded)."),
        "{unwritten}"
    );
    assert!(answer["removed"]["blocks"].as_u64().unwrap() > 0 && answer["scaled"]["blocks"].as_u64().unwrap() > 0);
    assert_eq!(answer["file"], "changed.snap");
    let diff = object(folder.path(), "diff run.snap changed.snap --json");
    let [before, after] = ["measured", "changed"].map(|key| peaks(&answer[key])[0]);
    assert_eq!(diff["delta_bytes"].as_i64().unwrap(), after as i64 - before as i64);
    let verified = highwater(folder.path(), "verify changed.snap");
    assert_eq!(verified.status.code(), Some(0), "{}", stdout(&verified));
    let again = object(folder.path(), "whatif changed.snap --json");
    assert_eq!((&again["divergence"], &again["replayed"]), (&Value::Null, &again["measured"]));
}

#[test]
fn blocks_end_with_their_last_use_where_the_recording_has_uses() {
    let folder = recorded();
    refused(folder.path(), "whatif run.snap --until-last-use category=gradient", "record --uses");
    object(folder.path(), &format!("{MODEL} --uses --out uses.snap --json"));
    let answer = object(folder.path(), "whatif uses.snap --until-last-use 'size>=1' --json");
    let [before, after] = ["measured", "changed"].map(|key| peaks(&answer[key])[0]);
    let explained = object(folder.path(), "explain uses.snap --json");
    assert_eq!(after, explained["idle"]["peak"]["bytes"].as_u64().unwrap(), "as explain says without a replay");
    assert!(answer["shortened"]["blocks"].as_u64().unwrap() > 0 && after < before, "{before} {after}");
    assert_eq!(answer["divergence"], Value::Null, "uses change nothing about where blocks lie");
}

#[test]
fn blocks_of_a_recording_in_windows_change_as_those_of_one_in_memory() {
    let folder = recorded();
    let file = Arc::new(std::fs::File::open(folder.path().join("run.snap")).unwrap());
    let windows = Windows::open(file, &mut |_| ControlFlow::Continue(())).unwrap();
    let windows = Source::in_windows(windows).unwrap().in_windows_of(97);
    let whole = Source::in_memory(read_file(&folder.path().join("run.snap")).unwrap());
    let part = |numerator, denominator| SizePart { numerator, denominator };
    let filter = |text: &str| text.parse::<Filter>().unwrap();
    let half = (part(1, 2), filter("category=activation"));
    let larger = (part(3, 1), filter("category=parameter,gradient"));
    let small = Some(8 << 20);
    let conf = Some("expandable_segments:True".to_owned());
    let changes = [
        Change { without: vec![filter("category=activation")], ..Change::default() },
        Change { without: vec![filter("category=parameter"), filter("op~linear")], ..Change::default() },
        Change { without: vec![filter("step=1")], scale: vec![half.clone()], alloc_conf: conf, ..Change::default() },
        Change { scale: vec![larger, half], capacity: small, ..Change::default() },
        Change { without: vec![filter("op=nothing")], ..Change::default() },
    ];
    for change in changes {
        let [expected, found] = [&whole, &windows].map(|source| predict(source, &change).unwrap().changed.unwrap());
        let facts = |changed: &Changed| {
            let Changed { mut figures, concerned, oom, rescued, live_bytes, suffices, .. } = changed.clone();
            // Summaries do not say which phases there are: one that ends in the first counts as a phase.
            figures.summary.peaks.iter_mut().for_each(|peak| peak.has_phase = false);
            (figures.summary, figures.failure, concerned, oom, rescued, live_bytes, suffices)
        };
        assert_eq!(facts(&found), facts(&expected), "{change:?}");
    }
    let refused = Change { without: vec![filter("lifetime=step")], ..Change::default() };
    assert!(predict(&windows, &refused).unwrap_err().to_string().contains("cut out a part"));
    for words in ["--without category=activation --json", "--zero 1 --ranks 8 --json", "--without lifetime=step"] {
        let words = format!("whatif run.snap {words}");
        let answers = ["0", "1000000"].map(|most| {
            let output = highwater_with(folder.path(), &words, most);
            (stdout(&output), stderr(&output), output.status.code())
        });
        assert_eq!(answers[0], answers[1], "{words}");
    }
}

#[test]
fn what_cannot_be_replayed_is_refused_with_what_to_do() {
    let folder = recorded();
    for (words, expected) in [
        ("whatif run.snap --alloc-conf expandable_segments:Yes", "expected 'True' or 'False'"),
        ("whatif run.snap --scale 1/0:size>1", "write 1/2, 0.5 or 50%"),
        ("whatif run.snap --scale 1/2", "write 1/2:category=activation"),
        ("whatif run.snap --scale 2:", "'2:' names no blocks: write 1/2:category=activation"),
        ("whatif run.snap --without ''", "it matches all blocks"),
        ("whatif run.snap --until-last-use ' '", "it matches all blocks"),
        ("whatif run.snap --capacity 24", "24 is 24 bytes; did you mean 24GiB?"),
        ("check run.snap --max-peak 5", "did you mean 5GiB?"),
        ("whatif run.snap --without colour=red", "colour"),
        ("whatif run.snap --out copy.snap", "nothing is changed"),
        ("whatif run.snap --capacity 1GiB --out copy.xyz", ".snap"),
        ("whatif run.snap --alloc-conf expandable_segment:True", "(did you mean 'expandable_segments'?)"),
        ("whatif run.snap --device 7", "no such device"),
        ("whatif gone.snap", "gone.snap"),
    ] {
        refused(folder.path(), words, expected);
    }
}

#[test]
fn a_recording_that_ends_in_an_oom_never_fits() {
    let folder = tempfile::tempdir().unwrap();
    let record = highwater(folder.path(), &format!("{MODEL} --capacity 10MiB --out oom.snap"));
    assert_eq!(record.status.code(), Some(2), "{}", stderr(&record));
    let answer = object(folder.path(), "whatif oom.snap --capacity 12MiB --json");
    assert_eq!((&answer["fits"], &answer["oom"]), (&Value::Null, &Value::Null), "{answer}");
    // A run with enough memory reserves no less than the bound.
    let least = answer["lower_bound_bytes"].as_u64().unwrap();
    let whole = object(folder.path(), &format!("{MODEL} --out run.snap --json"));
    assert!(least > 8 << 20 && least <= peaks(&whole["peaks"])[3], "{least} {whole}");
    let output = highwater(folder.path(), "whatif oom.snap --capacity 12MiB");
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0));
    assert!(text.starts_with("Gets past the recorded failure with 12 MiB of memory; later events were not"), "{text}");
    assert!(!text.contains("Fits. "), "{text}");
    let tried = stdout(&highwater(folder.path(), "whatif oom.snap"));
    assert!(!tried.contains("runs to the end"), "the recording does not: {tried}");
    assert!(text.contains("Next: highwater record gpt2 --batch 2") && text.contains("--capacity 12MiB"), "{text}");
    let small = object(folder.path(), "whatif oom.snap --capacity 8MiB --json");
    assert_eq!((&small["fits"], &small["oom"]["suffices_bytes"]), (&false.into(), &Value::Null), "{small}");
}

#[test]
fn the_size_that_is_enough_is_the_smallest_that_a_replay_finds() {
    // Half of the first segments is free when the large request comes, so that an empty cache makes room for it.
    let mut text = String::new();
    for block in 0..8 {
        text += &format!("segment_alloc {:#x} 20971520 large\nalloc a{block} 20971520 large\n", block * 20_971_520_u64);
    }
    text += &(0..8).map(|block| format!("free a{block}\n")).collect::<String>();
    text += "segment_alloc 0x40000000 104857600 large\nalloc b 104857600 large\n";
    let trace = || highwater_notation::trace_from_text(&text).unwrap();
    let of = |size: &str| crate::sample::json(trace(), &format!("whatif a.snap --capacity {size} --json"));
    let enough = of("64MiB")["oom"]["suffices_bytes"].as_u64().unwrap();
    assert_eq!(enough, 160 << 20, "the 160 MiB of the first blocks; a cache of 60 MiB is released for the last");
    assert_eq!(of(&format!("{enough}B"))["fits"], true);
    assert_eq!(of(&format!("{}B", enough - (2 << 20)))["fits"], false);
}

#[test]
fn a_written_replay_says_that_it_is_one_and_keeps_the_recorded_settings() {
    let folder = recorded();
    object(folder.path(), "whatif run.snap --capacity 16MiB --out changed.snap --json");
    let [before, after] = ["run", "changed"].map(|name| object(folder.path(), &format!("info {name}.snap --json")));
    assert_eq!(after["facts"]["replay"], "not a measurement: run.snap with 16 MiB of memory");
    assert_eq!(before["devices"][0]["settings"], after["devices"][0]["settings"]);
    let diff = object(folder.path(), "diff run.snap changed.snap --json");
    let differing: Vec<&str> =
        diff["settings"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert!(!differing.iter().any(|name| name.contains("alloc_conf")), "{differing:?}");
}

#[test]
fn a_capacity_is_asked_of_all_devices() {
    let text = "alloc a 1048576\nalloc b 1048576\nalloc c 1048576\nfree a\nfree b\nfree c\n\
                alloc d 52428800 device=1\nfree d\n";
    let trace = || highwater_notation::trace_from_text(text).unwrap();
    let of = |words: &str| crate::sample::json(trace(), words);
    let both = of("whatif a.snap --capacity 24MiB --json");
    assert_eq!((&both["fits"], &both["device"]), (&false.into(), &1.into()), "{both}");
    let fits: Vec<&Value> = both["devices"].as_array().unwrap().iter().map(|one| &one["fits"]).collect();
    assert_eq!(fits, [&Value::Bool(true), &Value::Bool(false)]);
    assert_eq!(of("whatif a.snap --capacity 24MiB --device 0 --json")["fits"], true);
    assert_eq!(of("whatif a.snap --capacity 64MiB --json")["fits"], true);
    let words = crate::sample::answer(trace(), "whatif a.snap --capacity 24MiB").unwrap();
    let lines: Vec<&str> = words.lines().collect();
    assert!(lines[0].starts_with("Device 1: Does not fit with 24 MiB of memory"), "{words}");
    assert!(lines.iter().any(|line| line.starts_with("Device 0: Fits.")), "{words}");
    let table = lines.iter().position(|line| line.trim_start().starts_with("peak of ")).unwrap();
    assert_eq!(lines[table - 1], "On device 1 of 2:", "{words}");
}

#[test]
fn settings_after_default_start_from_the_defaults() {
    let folder = tempfile::tempdir().unwrap();
    let conf = "max_split_size_mb:32,roundup_power2_divisions:4";
    object(folder.path(), &format!("{MODEL} --alloc-conf {conf} --out run.snap --json"));
    let conf_of = |conf: &str| {
        object(folder.path(), &format!("whatif run.snap --alloc-conf {conf} --json"))["alloc_conf"].clone()
    };
    assert_eq!(conf_of("default,expandable_segments:True"), "expandable_segments:True");
    assert_eq!(conf_of("expandable_segments:True"), format!("{conf},expandable_segments:True"));
    assert_eq!(conf_of("default"), "");
    refused(
        folder.path(),
        "whatif run.snap --alloc-conf default,expandable_segments:Yes",
        "expected 'True' or 'False'",
    );
}

#[test]
fn recomputed_modules_are_predicted_as_a_run_that_checkpoints_them_measures() {
    let folder = recorded();
    object(folder.path(), &format!("{MODEL} --uses --out uses.snap --json"));
    for pattern in ["h.*", "h.0", "h.*.mlp"] {
        object(folder.path(), &format!("{MODEL} --checkpoint {pattern} --out other.snap --json"));
        let real = object(folder.path(), "info other.snap --json");
        let predicted = object(folder.path(), &format!("whatif uses.snap --checkpoint {pattern} --json"));
        assert_eq!(peaks(&predicted["changed"]), peaks(&real["devices"][0]["peaks"]), "{pattern}");
        assert_eq!(predicted["recomputed"]["evidence"], "uses");
        let bound = object(folder.path(), &format!("whatif run.snap --checkpoint {pattern} --json"));
        assert!(peaks(&bound["changed"])[0] >= peaks(&predicted["changed"])[0], "{pattern}");
        assert_eq!(bound["recomputed"]["evidence"], "lifetimes");
    }
    let text = stdout(&highwater(folder.path(), "whatif run.snap --checkpoint h.* --capacity 1GiB"));
    assert!(text.contains("Recomputed in backward: 2 modules, 4 calls."), "{text}");
    assert!(text.contains("peaks within forward are estimates"), "{text}");
    refused(folder.path(), "whatif run.snap --checkpoint layers.*", "no module matches 'layers.*'");
    refused(folder.path(), "whatif run.snap --checkpoint h.{0", "a '{' is not closed");
}

#[test]
fn a_rank_of_several_keeps_its_share_of_the_optimizer() {
    let folder = recorded();
    let state = |file: &str| {
        let last = object(folder.path(), &format!("info {file} --json"))["devices"][0]["events"].as_u64().unwrap() - 1;
        let words = format!("peak {file} --at {last} --by category --json");
        let answer = object(folder.path(), &words);
        let groups = answer["groups"].as_array().unwrap().iter();
        let of_state = groups.filter(|group| group["key"].to_string().contains("optimizer_state"));
        of_state.map(|group| group["bytes"].as_u64().unwrap()).sum::<u64>()
    };
    let whole = state("run.snap");
    object(folder.path(), "whatif run.snap --zero 1 --ranks 4 --out shard.snap --json");
    let shard = state("shard.snap");
    assert!((whole / 4..whole / 4 + 1024).contains(&shard), "{shard} of {whole}");
    refused(folder.path(), "whatif run.snap --zero 1", "--ranks");
}
