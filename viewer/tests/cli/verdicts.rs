//! Tests verdicts of `plan` and `whatif` on built-in steps that run out of memory at random capacities: no verdict says
//! that a step fits if a new recording with the changes fails.

use std::path::Path;

use highwater_snapshots::format::{read_file, write_trace};
use serde_json::Value;

use crate::binary::{highwater, stderr, stdout};

const MIB: u64 = 1 << 20;
/// Recordings that end out of memory, of which all but the first few are for `--ignored`.
const RECORDINGS: usize = 40;
/// Steps of few layers, whose peaks are in forward, backward and the optimizer.
const MODELS: [&str; 14] = [
    "gpt2 --batch 4 --seq 128 --width 128 --layers 4 --heads 2 --vocab 500",
    "mlp",
    "matmul-chain",
    "falcon-7b --layers 3",
    "vit-small",
    "gpt2 --batch 8 --seq 256 --width 256 --layers 6 --heads 4 --vocab 2000 --fused",
    "llama-3-8b --layers 3 --lora 16",
    "llama-3-8b --variant full --layers 2",
    "vit-l-16 --layers 4 --batch 4",
    "tiny-nerf --width 64",
    "fcn",
    "frozen-branch",
    "rnn",
    "gpt2 --layers 3 --batch 2 --checkpoint",
];

/// Pseudo-random numbers, the same in every run.
struct Random(u64);

impl Random {
    fn within(&mut self, range: std::ops::Range<u64>) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        range.start + (self.0 >> 33) % (range.end - range.start)
    }
}

fn json(folder: &Path, words: &str) -> Value {
    let output = highwater(folder, words);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{words}: {error}: {}", stderr(&output)))
}

/// Whether recording `words`, which follow `record`, reaches its end.
fn succeeds(folder: &Path, words: &str) -> bool {
    let run = json(folder, &format!("record {words} --out again.snap --json"));
    run["oom"].is_null()
}

/// What was found out about one recording.
#[derive(Debug, Default)]
struct Tally {
    /// Plans that said that the step fits, each confirmed by recording it again.
    confirmed: usize,
    /// Answers that said how far the recording goes, and no more.
    open: usize,
    /// Answers that said that it does not fit.
    refused: usize,
    /// Verdicts that a new recording contradicts.
    wrong: Vec<String>,
}

impl Tally {
    /// Checks the first line of `words`, and that `fits` in their JSON says the same.
    fn check(&mut self, folder: &Path, words: &str, may_fit: impl FnOnce(&Value) -> bool) {
        let answer = json(folder, &format!("{words} --json"));
        let text = stdout(&highwater(folder, words));
        let says_so =
            text.starts_with("Fits") || text.starts_with("Runs to the end") || text.contains("runs to the end");
        match answer["fits"].as_bool() {
            Some(true) if may_fit(&answer) => self.confirmed += 1,
            None if !says_so => self.open += 1,
            Some(false) if text.starts_with("Does not fit") => self.refused += 1,
            _ => self.wrong.push(format!(
                "{words}: fits {}: {}",
                answer["fits"],
                text.lines().next().unwrap_or_default()
            )),
        }
    }
}

/// Records `model` on a device that is too small, and checks every verdict on it; `None` if it fits all the same.
fn verdicts(model: &str, random: &mut Random) -> Option<Tally> {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let model = format!("{model} --steps 2");
    let whole = json(at, &format!("record {model} --out whole.snap --json"));
    let reserved = whole["peaks"]["reserved"]["bytes"].as_u64().unwrap();
    let part = |random: &mut Random, percent| (reserved * random.within(percent) / 100 / MIB).max(1) * MIB;
    let capacity = part(random, 35..99);
    let failed = json(at, &format!("record {model} --capacity {capacity}B --out oom.snap --json"));
    if failed["oom"].is_null() {
        return None;
    }
    // The same recording, of a program that cannot be run again.
    let trace = read_file(&at.join("oom.snap")).unwrap().edited(|trace| trace.header.program = "train.py".to_owned());
    std::fs::write(at.join("other.snap"), write_trace(Vec::new(), &trace).unwrap()).unwrap();
    let mut tally = Tally::default();
    for budget in [capacity, part(random, 60..130), reserved + 64 * MIB] {
        tally.check(at, &format!("plan oom.snap --budget {budget}B"), |answer| match answer["command"].as_str() {
            Some(command) => succeeds(at, command.strip_prefix("highwater record ").unwrap()),
            None => succeeds(at, &format!("{model} --capacity {budget}B")),
        });
        for words in [
            format!("plan other.snap --budget {budget}B"),
            format!("whatif oom.snap --capacity {budget}B"),
            format!("whatif oom.snap --capacity {budget}B --alloc-conf expandable_segments:True"),
        ] {
            tally.check(at, &words, |_| false);
        }
        let conf = "expandable_segments:True";
        for (options, extra) in
            [("", String::new()), (" --alloc-conf expandable_segments:True", format!("--alloc-conf {conf}"))]
        {
            let words = format!("whatif whole.snap --capacity {budget}B{options}");
            let again = succeeds(at, &format!("{model} --capacity {budget}B {extra}"));
            tally.check(at, &words, |_| again);
            // A whole recording also decides that a step does not fit.
            let fits = json(at, &format!("{words} --json"))["fits"].as_bool();
            if fits == Some(false) && again {
                tally.wrong.push(format!("{words}: does not fit, but a run does"));
            }
        }
    }
    let tried = stdout(&highwater(at, "whatif oom.snap"));
    if tried.contains("runs to the end") {
        tally.wrong.push(format!("whatif oom.snap: {tried}"));
    }
    Some(tally)
}

#[expect(clippy::print_stdout, reason = "the figures are the result")]
fn check(recordings: usize) {
    let mut random = Random(41);
    let (mut done, mut all) = (0, Tally::default());
    for round in 0.. {
        if done == recordings {
            break;
        }
        assert!(round < recordings * 10, "most steps fit in less than their peak");
        let model = MODELS[round % MODELS.len()];
        let Some(tally) = verdicts(model, &mut random) else { continue };
        done += 1;
        all.confirmed += tally.confirmed;
        all.open += tally.open;
        all.refused += tally.refused;
        all.wrong.extend(tally.wrong.into_iter().map(|text| format!("{model}: {text}")));
    }
    let Tally { confirmed, open, refused, wrong } = &all;
    println!("{done} recordings: {confirmed} fit and do, {open} say how far they go, {refused} do not fit");
    assert!(wrong.is_empty(), "{} wrong verdicts:\n{}", wrong.len(), wrong.join("\n"));
    assert!(*confirmed > 0 && *open > 0 && *refused > 0, "{all:?}");
}

#[test]
fn no_verdict_on_a_recording_that_ends_out_of_memory_says_that_it_fits_where_it_fails_again() {
    check(2);
}

#[test]
#[ignore = "takes minutes: run it after changing how plans or replays decide"]
fn no_verdict_on_forty_recordings_that_end_out_of_memory_says_that_it_fits_where_it_fails_again() {
    check(RECORDINGS);
}
