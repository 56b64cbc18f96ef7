//! Tests the text and JSON output of `check` and `growth`, and the exit codes of `check`.

use expect_test::{Expect, expect};
use highwater_notation::trace_from_text;
use highwater_snapshots::Trace;
use highwater_snapshots::format::write_trace;
use highwater_snapshots::trace::DeviceFacts;
use serde_json::Value;

use crate::binary::{folder, highwater, names, refused, stderr, stdout};
use crate::sample::{answer, crowded, json, trace};

fn check(trace: Trace, words: &str, expected: &Expect) {
    expected.assert_eq(&answer(trace, words).unwrap());
}

#[test]
fn check_says_which_budgets_are_kept_and_who_broke_the_others() {
    check(
        trace(),
        "check step.snap --max-peak 20KiB --max-reserved 4MiB --max gradient=4096B --max-phase backward=1KiB --github",
        &expect![[r#"
            Failed: 2 of 4 budgets exceeded.

                        rule                what                               limit     actual    headroom
              exceeded  max-peak            peak of requested              20.00 KiB  20.98 KiB     −1000 B
              met       max-reserved        peak of reserved                4.00 MiB   4.00 MiB         0 B
              met       max gradient        peak of gradient                4.00 KiB   4.00 KiB         0 B
              exceeded  max-phase backward  peak of requested in backward   1.00 KiB  11.91 KiB  −10.91 KiB

            max-peak: 1000 B over the limit, at event 11, step 0, optimizer.
              optimizer states of scope `layer` take 8 KiB of the 20.98 KiB at the peak (38%).

            max-phase backward: 10.91 KiB over the limit, at event 5, step 0, backward.
              parameters of scope `layer` take 4 KiB of the 11.91 KiB at the peak of backward (34%).

            Next: highwater explain step.snap   for ways to lower the peak
            ::error title=highwater check max-peak::peak of requested is 20.98 KiB, the limit 20 KiB: optimizer states of scope `layer` take 8 KiB of the 20.98 KiB at the peak (38%25)
            ::error title=highwater check max-phase backward::peak of requested in backward is 11.91 KiB, the limit 1 KiB: parameters of scope `layer` take 4 KiB of the 11.91 KiB at the peak of backward (34%25)
        "#]],
    );
}

#[test]
fn check_compares_with_a_baseline() {
    check(
        trace(),
        "check step.snap --baseline wide.snap --max-growth 5% --max activation=3KiB",
        &expect![[r#"
            Failed: 1 of 2 budgets exceeded.

                        rule            what                                                  limit     actual   headroom   baseline
              exceeded  max-growth      peak of requested, at most 5% above the baseline  17.83 KiB  20.98 KiB  −3.15 KiB  16.98 KiB
              met       max activation  peak of activation                                 3.00 KiB   2.93 KiB       72 B   5.86 KiB

            max-growth: 3.15 KiB over the limit, at event 11, step 0, optimizer.
              temporaries grew 4 KiB at the peak (from 0 B to 4 KiB).

            Differences from the baseline at the peak:
              category       scope    baseline        now  difference
              temporary      (none)        0 B   4.00 KiB   +4.00 KiB
              4 more groups          16.98 KiB  16.98 KiB         0 B
              total                  16.98 KiB  20.98 KiB   +4.00 KiB

            Next: highwater diff wide.snap step.snap --by scope,op   for all differences from the baseline
        "#]],
    );
    check(
        trace(),
        "check step.snap --baseline wide.snap --max-growth 1MiB",
        &expect![[r#"
            Passed: 1 budget met.

                   rule        what                                                    limit     actual     headroom   baseline
              met  max-growth  peak of requested, at most 1 MiB above the baseline  1.02 MiB  20.98 KiB  1020.00 KiB  16.98 KiB

            Differences from the baseline at the peak:
              category       scope    baseline        now  difference
              temporary      (none)        0 B   4.00 KiB   +4.00 KiB
              4 more groups          16.98 KiB  16.98 KiB         0 B
              total                  16.98 KiB  20.98 KiB   +4.00 KiB

            Next: highwater diff wide.snap step.snap --by scope,op   for all differences from the baseline
        "#]],
    );
}

#[test]
fn what_check_shows_programs_has_the_promised_keys() {
    let told = json(trace(), "check step.snap --json --baseline wide.snap --max-growth 0 --max-peak 1GiB");
    assert_eq!((&told["passed"], told["rules"].as_array().unwrap().len()), (&false.into(), 2));
    let broken = told["broken"].as_array().unwrap();
    let [growth] = &broken[..] else { panic!("{told}") };
    assert_eq!(growth["rule"], "max-growth");
    let bytes = |key: &str| growth[key].as_i64().unwrap();
    assert_eq!(bytes("limit_bytes"), bytes("baseline_bytes"));
    assert_eq!(bytes("headroom_bytes"), bytes("limit_bytes") - bytes("actual_bytes"));
    assert!(growth["culprit"].as_str().unwrap().starts_with("temporaries grew 4 KiB at the peak"), "{growth}");
    assert_eq!(growth["culprit_group"]["category"], "temporary");
    let groups = told["differences"]["groups"].as_array().unwrap();
    let listed: i64 = groups.iter().map(|group| group["delta_bytes"].as_i64().unwrap()).sum();
    let rest = told["differences"]["rest_delta_bytes"].as_i64().unwrap();
    assert_eq!(listed + rest, told["differences"]["delta_bytes"].as_i64().unwrap());
    let passed = json(trace(), "check step.snap --json --max-peak 1GiB");
    assert_eq!((&passed["passed"], &passed["broken"]), (&true.into(), &serde_json::json!([])));
}

#[test]
fn check_ends_with_0_or_1_and_writes_markdown_and_reads_budgets() {
    let (folder, _) = folder();
    let at = |name: &str| folder.path().join(name);
    let status = |words: &str| {
        let output = highwater(folder.path(), words);
        assert_eq!(stderr(&output), "", "{words}");
        (output.status.code(), stdout(&output))
    };
    assert_eq!(status("check step.snap --max-peak 1GiB").0, Some(0));
    assert_eq!(status("check step.snap --max-peak 1KiB").0, Some(1));
    std::fs::write(at("budgets.toml"), "peak = \"1KiB\"\nbaseline = \"step.snap\"\n[phase]\nbackward = \"1GiB\"\n")
        .unwrap();
    let (code, text) = status("check step.snap --budgets budgets.toml --markdown told.md");
    assert!(code == Some(1) && text.starts_with("Failed: 1 of 2 budgets exceeded."), "{text}");
    assert_eq!(
        status("check step.snap --budgets budgets.toml --max-peak 1GiB").0,
        Some(0),
        "the command line goes before"
    );
    let markdown = std::fs::read_to_string(at("told.md")).unwrap();
    expect![[r#"
        ### Memory: failed

        Failed: 1 of 2 budgets exceeded. `step.snap` against `step.snap`.

        | | rule | what | limit | actual | headroom | baseline |
        |---|---|---|--:|--:|--:|--:|
        | **exceeded** | `max-peak` | peak of requested | 1.00 KiB | 20.98 KiB | −19.98 KiB | 20.98 KiB |
        | met | `max-phase backward` | peak of requested in backward | 1.00 GiB | 11.91 KiB | 1023.99 MiB | 11.91 KiB |

        - **max-peak**: 19.98 KiB over the limit, at event 11, step 0, optimizer: optimizer states of scope `layer` take 8 KiB of the 20.98 KiB at the peak (38%).
    "#]].assert_eq(&markdown);
    let (code, text) = status("check step.snap --budgets budgets.toml --markdown -");
    assert_eq!((code, text), (Some(1), markdown), "in place of the text");
    let told: Value =
        serde_json::from_str(&status("check step.snap --max-peak 1KiB --json --markdown b.md").1).unwrap();
    assert_eq!(told["passed"], false);
    assert_eq!(names(folder.path()), ["b.md", "budgets.toml", "step.snap", "told.md"]);
}

#[test]
fn what_check_cannot_do_is_refused_and_leaves_nothing() {
    let (folder, _) = folder();
    std::fs::write(folder.path().join("wrong.toml"), "peek = 3\n").unwrap();
    std::fs::write(folder.path().join("empty.toml"), "").unwrap();
    let cases = [
        ("step.snap", "nothing to check: give --max-peak SIZE"),
        ("step.snap --baseline step.snap", "nothing to check"),
        ("step.snap --budgets empty.toml", "nothing to check"),
        ("step.snap --budgets wrong.toml", "wrong.toml: line 1: unknown field `peek`"),
        ("step.snap --budgets missing.toml", "missing.toml"),
        ("step.snap --max-growth 5%", "--max-growth needs --baseline FILE"),
        ("step.snap --baseline missing.snap --max-growth 5%", "missing.snap"),
        ("step.snap --baseline step.snap --max-growth 5apples", "such as 5% or 200MiB"),
        ("- --baseline - --max-growth 5%", "not both"),
        ("step.snap --max-peak lots", "a size such as 512MiB"),
        ("step.snap --max weights=3", "unknown category 'weights'"),
        ("step.snap --max activation", "activation=2GiB"),
        ("step.snap --max-phase night=3", "unknown phase 'night'"),
        (
            "step.snap --max-phase setup=3B",
            "max-phase setup: the recording has no such phase; it has forward, backward",
        ),
        ("step.snap --max-step-growth 0", "one whole step"),
        ("step.snap --max activation=1B --metric reserved", "reserved is not a sum over blocks"),
        ("step.snap --max-peak 1B --device 7", "no such device"),
        ("step.snap --max-peak 1B --metric device_used", "no samples"),
        ("step.snap --max-peak 1B --markdown step.snap", "this is an input"),
        ("step.snap --max-peak 1B --markdown - --json", "standard output already has"),
        ("step.snap --max-peak 1B --markdown missing/a.md", "cannot write missing/a.md"),
        ("step.snap --max-peak 1B --github --json", "--github"),
        ("missing.snap --max-peak 1B", "missing.snap"),
    ];
    for (words, words_in_it) in cases {
        refused(folder.path(), &format!("check {words}"), words_in_it);
    }
    assert_eq!(names(folder.path()), ["empty.toml", "step.snap", "wrong.toml"]);
}

#[cfg(feature = "gui")]
#[test]
fn check_draws_the_picture_that_the_markdown_shows() {
    let (folder, _) = folder();
    std::fs::create_dir(folder.path().join("out")).unwrap();
    let words = "check step.snap --max-peak 1KiB --markdown out/told.md --picture out/step.png";
    assert_eq!(highwater(folder.path(), words).status.code(), Some(1));
    assert_eq!(names(&folder.path().join("out")), ["step.png", "told.md"]);
    let markdown = std::fs::read_to_string(folder.path().join("out/told.md")).unwrap();
    assert!(markdown.contains("![The recording's timeline](<step.png>)"), "{markdown}");
    refused(folder.path(), "check step.snap --max-peak 1B --picture a.jpg", "--picture: --out");
    let words = "check step.snap --baseline step.snap --max-growth 0% --markdown told.md --picture both.svg";
    assert_eq!(highwater(folder.path(), words).status.code(), Some(0));
    let markdown = std::fs::read_to_string(folder.path().join("told.md")).unwrap();
    assert!(markdown.contains("their differences](<both.svg>)"), "{markdown}");
    let picture = std::fs::read_to_string(folder.path().join("both.svg")).unwrap();
    assert!(picture.contains("(A)") && picture.contains("(B)"), "both recordings are drawn");
    let mut piped = std::process::Command::new(env!("CARGO_BIN_EXE_highwater"));
    piped.current_dir(folder.path()).args("check - --max-peak 1GiB --picture piped.svg".split(' '));
    piped.stdin(std::fs::File::open(folder.path().join("step.snap")).unwrap());
    assert_eq!(piped.output().unwrap().status.code(), Some(0));
    let picture = std::fs::read_to_string(folder.path().join("piped.svg")).unwrap();
    assert!(picture.contains("standard input"), "standard input is read once, and drawn");
}

#[cfg(not(feature = "gui"))]
#[test]
fn without_the_app_check_says_that_it_draws_nothing() {
    let (folder, _) = folder();
    refused(folder.path(), "check step.snap --max-peak 1B --picture a.png", "--picture: this build draws no pictures");
}

/// Three steps, each of which keeps 100 bytes and replaces its input; then half a step.
fn leaky() -> Trace {
    let mut text = "baseline w 1000/1024 parameter @net\n".to_owned();
    for step in 0..4 {
        text += &format!("step {step}\nphase forward\nalloc x{step} 50/512 input < load < main\n");
        if step > 0 {
            text += &format!("free x{}\n", step - 1);
        }
        text += &format!("alloc c{step} 100/512 activation #append @cache < remember < forward < main\n");
        text += "alloc a 300/512 activation #linear @net < forward < main\nphase backward\nfree a\n";
    }
    trace_from_text(&(text + "step 4\nphase forward\nalloc x5 50/512 input\n"))
        .unwrap()
        .edited(|trace| trace.devices = vec![DeviceFacts { capacity_bytes: 4096, ..DeviceFacts::default() }])
}

#[test]
fn growth_says_what_lives_on_from_step_to_step() {
    check(
        leaky(),
        "growth leaky.snap",
        &expect![[r#"
            remember leaks 100 B a step: 300 B from 3 steps (1 to 3) is still live.
            Live memory grows from the start of step 1 to the end of step 3: 300 B in 3 steps, 100 B a step on average.
            350 B allocated in these steps is still live (4 blocks); 50 B from before was freed (1 block). Live memory (requested): 1.12 KiB before, 1.42 KiB after, +300 B.
            Extrapolated: if every step adds as much, the peak of a step, 1.71 KiB now, exceeds the device's 4 KiB after 24 more steps; fragmentation and memory outside the allocator make this happen sooner.
            Counted from step 1: the first step of a recording allocates memory that later steps reuse.
            Counted to step 3: the next step has no backward.

              step  live after step  change  still live at end  blocks
              1            1.22 KiB  +100 B              100 B       1
              2            1.32 KiB  +100 B              100 B       1
              3            1.42 KiB  +100 B              150 B       2

            Allocated in these steps and still live, by group:
              category    scope   still live  blocks  freed from before  growth  in steps  minimum per step
              activation  cache        300 B       3                0 B  +300 B    3 of 3             100 B
              input       (none)        50 B       1               50 B     0 B    1 of 3
              total                    350 B       4               50 B  +300 B

            300 B in 3 blocks allocated at
              remember
              forward
              main

            Next: highwater growth leaky.snap --by stack   for the call stacks of the blocks that are still live
        "#]],
    );
    check(
        leaky(),
        "growth leaky.snap --from-step 2 --to-step 2 --by stack --where category=activation",
        &expect![[r#"
            Live memory in blocks with category=activation grows from the start of step 2 to the end of step 2, by 100 B.
            100 B allocated in these steps is still live (1 block). Live memory (requested): 200 B before, 300 B after, +100 B.

              step  live after step  change  still live at end  blocks
              2               300 B  +100 B              100 B       1

            Allocated in these steps and still live, by group:
              stack     still live  blocks  freed from before  growth  in steps
              remember       100 B       1                0 B  +100 B    1 of 1
              forward
              main
              total          100 B       1                0 B  +100 B

            Next: highwater peak leaky.snap --at end --by frame --where category=activation   for everything that is live at the end
        "#]],
    );
}

#[test]
fn growth_of_a_single_step_is_no_leak() {
    let text = "baseline w 4096\nstep 0\nphase forward\nalloc a 1000\nphase optimizer\nalloc m 8192\n";
    let told = answer(trace_from_text(text).unwrap(), "growth a.snap").unwrap();
    assert!(
        told.starts_with("One whole step only: a leak cannot be distinguished from first allocations.\n"),
        "{told}"
    );
    assert!(told.contains("\n8.98 KiB allocated in these steps is still live (2 blocks). Live memory"), "{told}");
    assert!(told.contains("\n`--between idle` compares the moments"), "it may be a server: {told}");
}

#[test]
fn what_growth_shows_programs_adds_up() {
    for options in ["", "--from-step 0 --to-step 4", "--by stack --top 0", "--metric allocated --where scope~cache"] {
        let told = json(leaky(), &format!("growth leaky.snap --json {options}"));
        let bytes = |value: &Value| value["bytes"].as_i64().unwrap();
        let net = bytes(&told["survivors"]) - bytes(&told["freed"]);
        assert_eq!(net, told["growth_bytes"].as_i64().unwrap(), "{told}");
        let listed: i64 =
            told["groups"].as_array().unwrap().iter().map(|group| group["growth_bytes"].as_i64().unwrap()).sum();
        let rest = told["rest_survivor_bytes"].as_i64().unwrap() - told["rest_freed_bytes"].as_i64().unwrap();
        assert_eq!(listed + rest, net, "{told}");
        if !options.contains("--where") {
            assert_eq!(bytes(&told["end"]) - bytes(&told["start"]), net, "{told}");
        }
    }
    let why = |words: &str| answer(leaky(), words).unwrap_err().to_string();
    assert!(why("growth leaky.snap --from-step 9").contains("--from-step 9: the recording has steps 0 to 4"));
    assert!(why("growth leaky.snap --from-step 1 --to-step 9").contains("--to-step 9: the recording has steps 0 to 4"));
    assert!(why("growth leaky.snap --from-step 3 --to-step 2").contains("step 3 comes after step 2"));
    assert!(why("growth leaky.snap --device 3").contains("no such device"));
}

#[test]
fn growth_names_the_leaks_of_every_device_with_their_lines() {
    let mut text = String::new();
    for step in 0..6 {
        let category = if step % 2 == 0 { "activation" } else { "unknown" };
        text += &format!("step {step}\nphase forward\nalloc a 100 < /p/net/train.py:5 step\nfree a\n");
        text += &format!("alloc k{step} 41943040 {category} device=1 < /p/net/train.py:9 log < /p/main.py:3 main\n");
    }
    let trace = || trace_from_text(&text).unwrap().edited(|trace| trace.trust.categories_guessed = true);
    let told = json(trace(), "growth leaky.snap --json --device 0");
    assert_eq!((&told["leaks"], told["devices"].as_array().unwrap().len()), (&serde_json::json!([]), 1));
    let told = json(trace(), "growth leaky.snap --json");
    let leaking = told["devices"].as_array().unwrap().iter().find(|device| device["device"] == 1).unwrap();
    assert_eq!(leaking["leaks"][0]["line"], "/p/net/train.py:9 log");
    assert_eq!(leaking["leaks"][0]["bytes_per_step"], 41_943_040);
    let answer = answer(trace(), "growth leaky.snap").unwrap();
    let line = answer.lines().any(|line| line.starts_with("Device 1: train.py:9 log leaks 40 MiB a step"));
    assert!(line, "{answer}");
    let mut first = answer.lines();
    assert!(first.next().unwrap().starts_with("Device "), "{answer}");
}

#[test]
fn growth_of_a_recording_without_steps_says_what_it_can_and_how_to_mark_steps() {
    let trace = || trace_from_text("baseline w 1024 < main\nalloc a 4096 < train.py:9 log\n").unwrap();
    let answer = answer(trace(), "growth bare.snap").unwrap();
    assert!(
        answer.starts_with("Live memory grows from the start of the recording to its end, by 4 KiB.\n"),
        "{answer}"
    );
    assert!(answer.contains("no steps") && answer.contains("scope::step(i)") && answer.contains("train.py:9 log"));
    let told = json(trace(), "growth bare.snap --json");
    assert_eq!(
        (&told["from_step"], &told["bytes_per_step"], &told["growth_bytes"]),
        (&Value::Null, &Value::Null, &4096.into())
    );
}

#[test]
fn check_fails_a_recording_that_ends_out_of_memory_and_passes_a_program_that_went_on() {
    let text = answer(crowded(), "check crowded.snap --max-peak 1GiB --github").unwrap();
    assert!(
        text.starts_with("Failed: the recording ends in an out-of-memory error, so 1 of 1 budget cannot be "),
        "{text}"
    );
    assert!(text.contains("unconfirmed") && text.contains("Out of memory: 2 requests failed"), "{text}");
    assert!(text.contains("::error title=highwater check max-peak::not confirmed"), "{text}");
    assert_eq!(json(crowded(), "check crowded.snap --max-peak 1GiB --json")["undecided"][0]["rule"], "max-peak");
    let smaller_batch = trace_from_text("alloc a 1024\noom 4096 free=0\nfree a\nalloc b 4096").unwrap();
    let text = answer(smaller_batch, "check retried.snap --max-peak 1GiB").unwrap();
    assert!(text.starts_with("Passed: 1 budget met, up to the request that failed."), "{text}");
}

#[test]
fn a_budget_of_a_category_says_how_much_is_of_unknown_category() {
    let trace = || trace_from_text("alloc a 1000 gradient\nalloc b 5000 unknown").unwrap();
    let warned = answer(trace(), "check a.snap --max gradient=2000B").unwrap();
    assert!(
        warned.starts_with("Passed") && warned.contains("4.88 KiB of the peak, 5.86 KiB, are of unknown"),
        "{warned}"
    );
    assert!(!answer(trace(), "check a.snap --max gradient=1MiB --max-peak 1MiB").unwrap().contains("unknown category"));
}

#[test]
fn a_file_of_a_strange_recording_is_answered_for() {
    let folder = tempfile::tempdir().unwrap();
    for (number, text) in ["", "alloc a 0", "oom 5 free=0", "step 0", "alloc a 18446744073709551615"].iter().enumerate()
    {
        let trace = trace_from_text(text).unwrap();
        let file = format!("{number}.snap");
        std::fs::write(folder.path().join(&file), write_trace(Vec::new(), &trace).unwrap()).unwrap();
        for command in
            ["oom", "growth", "check --max-peak 1B --max-reserved 1B --max activation=1B --max-phase setup=1B"]
        {
            let output = highwater(folder.path(), &format!("{command} {file}"));
            let code = output.status.code().unwrap();
            assert!((0..=2).contains(&code), "{command} of '{text}': {}", stderr(&output));
        }
    }
}

#[test]
fn a_baseline_of_a_real_gpu_beside_a_recording_of_a_simulated_one_is_stated() {
    let folder = tempfile::tempdir().unwrap();
    for (file, gpu) in [("real.snap", None), ("h100.snap", Some("NVIDIA H100")), ("t4.snap", Some("Tesla T4"))] {
        let trace =
            trace().edited(|trace| trace.header.facts.extend(gpu.map(|gpu| ("simulated".to_owned(), gpu.to_owned()))));
        std::fs::write(folder.path().join(file), write_trace(Vec::new(), &trace).unwrap()).unwrap();
    }
    let check = |options: &str| stdout(&highwater(folder.path(), &format!("check h100.snap {options}")));
    let text = check("--baseline real.snap --max-growth 5%");
    let words: Vec<&str> = text.split_whitespace().collect();
    let stated = "The baseline was recorded on a real device, this recording on a simulated NVIDIA H100:";
    assert!(words.join(" ").contains(stated), "{text}");
    let figures: Value = serde_json::from_str(&check("--baseline t4.snap --max-growth 5% --json")).unwrap();
    let caveat = figures["baseline_caveat"].as_str().unwrap();
    assert!(caveat.starts_with("The baseline was recorded on a simulated Tesla T4, this recording on"), "{caveat}");
    let figures: Value = serde_json::from_str(&check("--baseline h100.snap --max-growth 5% --json")).unwrap();
    assert!(figures["passed"].as_bool().unwrap() && figures.get("baseline_caveat").is_none());
}

/// A model whose layers are all made wider.
#[cfg(feature = "engine")]
#[test]
fn a_scenario_with_wider_layers_fails_its_check_and_these_are_named() {
    let folder = tempfile::tempdir().unwrap();
    for (file, hidden) in [("main.snap", 128), ("wide.snap", 512), ("tight.snap", 64)] {
        let words =
            format!("record vit-l-16 --layers 4 --width 64 --heads 2 --image 32 --hidden {hidden} --out {file}");
        let output = highwater(folder.path(), &words);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    let told = |file: &str| {
        let output = highwater(folder.path(), &format!("check {file} --baseline main.snap --max-growth 5% --json"));
        let told: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {}", stderr(&output)));
        (output.status.code(), told)
    };
    let (code, wide) = told("wide.snap");
    assert_eq!((code, &wide["passed"]), (Some(1), &false.into()));
    let culprit = wide["broken"][0]["culprit"].as_str().unwrap();
    assert!(culprit.contains("of scopes `") && culprit.contains("layers.*.mlp"), "{culprit}");
    assert_eq!((told("main.snap").0, told("tight.snap").0), (Some(0), Some(0)));
}
