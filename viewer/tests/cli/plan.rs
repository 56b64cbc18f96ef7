//! Tests that `highwater plan` prints the cheapest changes that fit a budget, by running the program with them.

use std::path::Path;

use highwater_notation::trace_from_text;
use highwater_snapshots::format::{read_file, write_trace};
use highwater_snapshots::units::format_bytes;
use serde_json::Value;

use crate::binary::{folder, highwater, refused, stderr, stdout};

/// A model of a few MiB whose peak is in forward.
const MODEL: &str = "gpt2 --batch 4 --seq 128 --width 128 --layers 4 --heads 2 --vocab 500 --steps 2 --fused";
/// Changes that leave the search to recomputation.
const ONLY_RECOMPUTE: &str = "--forbid micro-batches,in-backward";

fn planned(folder: &Path, words: &str) -> (i32, Value) {
    let output = highwater(folder, &format!("plan {words} --json"));
    let value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{words}: {}", stderr(&output)));
    (output.status.code().unwrap(), value)
}

fn recorded(folder: &Path, words: &str) -> Value {
    let output = highwater(folder, &format!("record {words} --out run.snap --json"));
    assert_eq!(output.status.code(), Some(0), "{words}: {}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn bytes(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no size"))
}

/// The peaks of requested, allocated and reserved bytes of a recorded run.
fn peaks(run: &Value) -> [u64; 3] {
    ["requested", "allocated", "reserved"].map(|metric| bytes(&run["peaks"][metric]["bytes"]))
}

/// The order of classes by what they cost.
fn class(value: &Value) -> usize {
    let classes = ["free", "same_speed", "slower", "less_precise", "other_training"];
    classes.iter().position(|name| value == name).unwrap_or_else(|| panic!("{value} is no class"))
}

#[test]
fn a_plan_has_the_peaks_of_the_command_that_it_gives_and_a_larger_budget_never_costs_more() {
    let folder = tempfile::tempdir().unwrap();
    let plain = bytes(&recorded(folder.path(), MODEL)["peaks"]["requested"]["bytes"]);
    let mut dearest = (usize::MAX, f64::MAX);
    let mut changes = 0;
    for percent in [55, 70, 85, 100, 130] {
        let budget = plain / 100 * percent;
        let (status, plan) = planned(folder.path(), &format!("--scenario {MODEL} --budget {budget}B --allow 8bit"));
        assert_eq!((status, &plan["fits"], &plan["proof"]), (0, &Value::from(true), &Value::from("rerun")), "{plan}");
        let lines = plan["plan"].as_array().unwrap();
        let share = plan["work_share"].as_f64().unwrap();
        let cost = (lines.iter().map(|line| class(&line["class"])).max().unwrap_or(0), share);
        assert!(cost <= dearest, "{percent} %: {cost:?} after {dearest:?}");
        dearest = cost;
        let Some(command) = plan["command"].as_str() else { continue };
        changes += 1;
        let run = recorded(folder.path(), command.strip_prefix("highwater record ").unwrap());
        let after = ["requested_bytes", "allocated_bytes", "reserved_bytes"].map(|key| bytes(&plan["after"][key]));
        assert_eq!(peaks(&run), after, "{command}");
        assert!(after[2] <= budget && run["oom"].is_null());
        assert_eq!(lines.last().unwrap()["peak_bytes"], after[0]);
    }
    assert!(changes >= 3);
}

#[test]
fn no_recomputed_module_can_be_left_out_and_an_impossible_budget_names_the_least() {
    let folder = tempfile::tempdir().unwrap();
    let peak_of = |paths: &[String]| {
        let options: String = paths.iter().map(|path| format!(" --checkpoint {path}")).collect();
        peaks(&recorded(folder.path(), &format!("{MODEL}{options}")))
    };
    let sets: Vec<Vec<String>> = (0..16)
        .map(|set| (0..4).filter(|block| set >> block & 1 == 1).map(|block| format!("h.{block}")).collect())
        .collect();
    let all: Vec<[u64; 3]> = sets.iter().map(|set| peak_of(set)).collect();
    let least = all.iter().map(|peaks| peaks[0]).min().unwrap();
    let words = |budget: u64| format!("--scenario {MODEL} {ONLY_RECOMPUTE},settings --budget {budget}B");
    for budget in [all[1][2], all[3][2], all[7][2]] {
        let (status, plan) = planned(folder.path(), &words(budget));
        assert_eq!(status, 0);
        let chosen = plan["plan"][0]["scopes"].as_array().unwrap().len();
        let fewest = sets.iter().zip(&all).filter(|(_, peaks)| peaks[2] <= budget).map(|(set, _)| set.len()).min();
        assert!(Some(chosen) <= fewest, "{chosen} of {fewest:?} with {budget}");
    }
    let (status, plan) = planned(folder.path(), &words(least - 1));
    assert_eq!((status, &plan["fits"]), (1, &Value::from(false)));
    assert_eq!((bytes(&plan["minimum"]["bytes"]), &plan["minimum"]["is_exact"]), (least, &Value::from(true)));
    let device = bytes(&plan["minimum"]["device_bytes"]);
    assert_eq!(planned(folder.path(), &words(device)).0, 0, "the device that it names is large enough");
    let text = stdout(&highwater(folder.path(), &format!("plan {}", words(least - 1))));
    assert!(text.starts_with("Does not fit in") && text.contains("its peak consists of"), "{text}");
}

/// Requested bytes alone call for a fourth module here, which only the allocator shows not to be needed.
#[test]
fn no_module_can_be_left_out_that_only_the_allocator_shows_to_be_needless() {
    let folder = tempfile::tempdir().unwrap();
    let words = "--scenario vit-l-16 --batch 32 --budget 8065929517B --forbid settings";
    let plan = planned(folder.path(), words).1;
    let command = plan["command"].as_str().unwrap().strip_prefix("highwater record ").unwrap().to_owned();
    let (before, patterns) = command.split_once("--checkpoint").unwrap();
    let after = patterns.split_whitespace().skip(1).collect::<Vec<_>>().join(" ");
    let scopes: Vec<&str> = plan["plan"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|line| line["scopes"].as_array().unwrap())
        .map(|scope| scope.as_str().unwrap())
        .collect();
    assert!(scopes.len() > 1, "{plan}");
    for left_out in &scopes {
        let others: String =
            scopes.iter().filter(|scope| *scope != left_out).map(|scope| format!("--checkpoint {scope} ")).collect();
        let run = highwater(folder.path(), &format!("record {before} {others} {after} --out run.snap --json"));
        let run: Value = serde_json::from_slice(&run.stdout).unwrap();
        assert!(!run["oom"].is_null(), "without {left_out}: {command}");
    }
}

#[test]
fn a_recording_of_record_is_run_again_and_what_fits_already_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let run = recorded(folder.path(), MODEL);
    let budget = peaks(&run)[0] / 100 * 70;
    let of_file = planned(folder.path(), &format!("run.snap --budget {budget}B"));
    assert_eq!(of_file, planned(folder.path(), &format!("--scenario {MODEL} --budget {budget}B")));
    let text = stdout(&highwater(folder.path(), "plan run.snap --budget 80GiB"));
    assert!(text.starts_with("Fits in 80 GiB as it is:") && text.contains("free."), "{text}");
    recorded(folder.path(), &format!("{MODEL} --checkpoint"));
    let text = stdout(&highwater(folder.path(), "plan run.snap --budget 80GiB"));
    assert!(text.contains("It would also fit with less work: nothing changed"), "{text}");
}

#[test]
fn a_recording_that_ends_before_it_has_as_many_events_as_steps_is_run_again() {
    let folder = tempfile::tempdir().unwrap();
    let model = MODEL.replace("--steps 2", "--steps 5");
    highwater(folder.path(), &format!("record {model} --capacity 1MiB --out run.snap"));
    assert!(read_file(&folder.path().join("run.snap")).unwrap().events.len() < 5);
    let (_, plan) = planned(folder.path(), &format!("run.snap --budget 1GiB {ONLY_RECOMPUTE}"));
    assert_eq!((&plan["proof"], &plan["fits"]), (&"rerun".into(), &true.into()), "{plan}");
}

#[test]
fn a_recording_of_another_program_is_replayed_with_the_changes() {
    let folder = tempfile::tempdir().unwrap();
    let plain = peaks(&recorded(folder.path(), &format!("{MODEL} --uses")));
    let trace = read_file(&folder.path().join("run.snap"))
        .unwrap()
        .edited(|trace| trace.header.program = "train.py".to_owned());
    std::fs::write(folder.path().join("other.snap"), write_trace(Vec::new(), &trace).unwrap()).unwrap();
    let (status, plan) = planned(folder.path(), &format!("other.snap --budget {}B", plain[2]));
    assert_eq!((status, &plan["proof"], &plan["fits_as_is"]), (0, &"replayed".into(), &true.into()), "{plan}");
    let words = |file: &str| format!("{file} --budget {}B {ONLY_RECOMPUTE}", plain[0] / 100 * 85);
    let [(_, replayed), (_, real)] = ["other.snap", "run.snap"].map(|file| planned(folder.path(), &words(file)));
    assert_eq!(replayed["plan"][0]["scopes"], real["plan"][0]["scopes"]);
    assert_eq!(replayed["after"], real["after"]);
    let lines = replayed["lines"].to_string();
    assert!(
        lines.contains("checkpoint, module.forward, use_reentrant=False") && replayed["command"].is_null(),
        "{lines}"
    );
}

#[test]
fn memory_that_others_use_counts_against_the_budget_as_it_does_in_a_what_if_prediction() {
    let folder = tempfile::tempdir().unwrap();
    let mebibytes = |count: u64| count << 20;
    // Of 900 MiB in use, 300 MiB are not the allocator's.
    let text = format!(
        "segment_alloc 0x10000000 {0}\nalloc a {0} large\ndevice_used {1}\nfree a\n",
        mebibytes(600),
        mebibytes(900)
    );
    let trace = trace_from_text(&text).unwrap();
    std::fs::write(folder.path().join("used.snap"), write_trace(Vec::new(), &trace).unwrap()).unwrap();
    for (size, fits) in [(800, false), (1000, true)] {
        let (status, plan) = planned(folder.path(), &format!("used.snap --budget {size}MiB"));
        assert_eq!((status == 0, bytes(&plan["reserve_bytes"])), (fits, mebibytes(300)), "{plan}");
        let whatif = stdout(&highwater(folder.path(), &format!("whatif used.snap --capacity {size}MiB --json")));
        let whatif: Value = serde_json::from_str(&whatif).unwrap();
        assert_eq!(whatif["oom"].is_null(), fits, "{whatif}");
    }
    let text = stdout(&highwater(folder.path(), "plan used.snap --budget 1000MiB"));
    assert!(text.contains("Fits in 1000 MiB less 300 MiB as it is"), "{text}");
    assert!(!text.contains("which follows references"), "no program of PyTorch: {text}");
    assert!(
        text.contains("Other processes use 300 MiB of the budget, according to the recording's samples."),
        "{text}"
    );
    let (status, plan) = planned(folder.path(), "used.snap --budget 800MiB --reserve 100MiB");
    assert_eq!((status, bytes(&plan["reserve_bytes"])), (0, mebibytes(100)), "what is given counts: {plan}");
}

#[test]
fn the_largest_batch_fits_and_one_more_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let model = MODEL.replace("--batch 4", "");
    let words = format!("--budget 40MiB {ONLY_RECOMPUTE}");
    let (status, plan) = planned(folder.path(), &format!("--scenario {model} {words} --maximize batch"));
    let batch = plan["maximized"].as_u64().unwrap();
    let command = plan["command"].as_str().unwrap().strip_prefix("highwater record ").unwrap();
    assert!(status == 0 && command.contains(&format!("--batch {batch}")), "{plan}");
    assert!(recorded(folder.path(), command)["oom"].is_null());
    let with = |batch: u64| planned(folder.path(), &format!("--scenario {model} --batch {batch} {words}")).0;
    assert_eq!([with(batch), with(batch + 1)], [0, 1]);
}

#[test]
fn explain_and_check_give_the_peak_that_recomputation_has_in_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let model = MODEL.replace("--batch 4", "--batch 32");
    let real = |options: &str| peaks(&recorded(folder.path(), &format!("{model} {options}")))[0];
    let [all, some] = [real("--checkpoint"), real("--checkpoint h.{0-2}")].map(format_bytes);
    let plain = real("--uses");
    let figures = format!(
        "Recomputing all 4 modules h.{{0-3}} lowers the peak to {all}, recomputing only h.{{0-2}} to {some} (replayed)."
    );
    let advice: Value = serde_json::from_slice(&highwater(folder.path(), "explain run.snap --json").stdout).unwrap();
    assert!(advice["advice"].to_string().contains(&figures), "{figures} {}", advice["advice"]);
    let check = highwater(folder.path(), &format!("check run.snap --max-peak {}B", plain - 1));
    assert!(stdout(&check).contains(&figures), "{figures} {}", stdout(&check));
    let check = highwater(folder.path(), &format!("check run.snap --max-peak {plain}B"));
    assert!(!stdout(&check).contains("Recomputing"));
}

#[test]
fn times_are_estimated_only_if_asked_for_and_depend_on_the_dtype() {
    let folder = tempfile::tempdir().unwrap();
    let budget = "--budget 20MiB --forbid micro-batches,in-backward,settings";
    let of = |words: &str| planned(folder.path(), &format!("--scenario {MODEL} {budget} {words}")).1;
    let micros = |plan: &Value| bytes(&plan["estimated_step_us"]);
    let without = of("");
    assert!(without["estimated_step_us"].is_null() && without["plan"][0]["estimated_us"].is_null(), "{without}");
    let [h100, l4, tf32] = ["--gpu h100", "--gpu l4", "--gpu h100 --tf32"].map(of);
    assert!(micros(&l4) > 2 * micros(&h100) && micros(&tf32) < micros(&h100), "{l4} {h100} {tf32}");
    let bf16 = planned(folder.path(), &format!("--scenario {MODEL} --dtype bf16 --budget 1GiB --gpu h100")).1;
    assert!(micros(&bf16) < micros(&tf32), "{bf16}");
    let more: i64 = h100["plan"].as_array().unwrap().iter().map(|line| line["estimated_us"].as_i64().unwrap()).sum();
    let plain = planned(folder.path(), &format!("--scenario {MODEL} --budget 1GiB --gpu h100")).1;
    assert_eq!(micros(&plain) as i64 + more, micros(&h100) as i64, "a fused step as it is, then the plan");
    assert!(more > 0 && h100["gpu"] == "h100", "{h100}");
    let text = stdout(&highwater(folder.path(), &format!("plan --scenario {MODEL} {budget} --gpu h100")));
    assert!(text.contains("about +") && text.contains("Estimated, h100: a step takes about"), "{text}");
}

#[test]
fn mistakes_are_explained() {
    let (folder, _) = folder();
    for (words, text) in [
        ("plan --budget 8GiB", "required"),
        (&format!("plan --scenario {MODEL}"), "--budget"),
        (&format!("plan --scenario {MODEL} --budget 1GiB --reserve 2GiB"), "leaves nothing of the budget"),
        (&format!("plan --scenario {MODEL} --budget 1GiB --modules x.*"), "no module matches 'x.*'"),
        (&format!("plan --scenario {MODEL} --budget 1GiB --allow sgd"), "expected 8bit, bf16, lora or freeze"),
        ("plan --scenario gpt3 --budget 1GiB", "unknown scenario 'gpt3'"),
        ("plan --scenario gpt2 --budget 1GiB --gpu k80", "unknown GPU 'k80': expected one of h100, h100-pcie"),
        ("plan --scenario gpt2 --budget 1GiB --gpu b200", "the peak rates of 'b200' are not known"),
        ("plan --budget 1GiB --maximize batch -- python train.py", "--maximize needs a step whose size is known"),
        ("plan --scenario gpt2 --budget 1GiB --tf32", "--gpu"),
        ("plan step.snap --budget 1GiB --gpu h100", "it has no shapes of operations"),
    ] {
        refused(folder.path(), words, text);
    }
}
