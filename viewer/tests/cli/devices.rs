//! Tests which device is selected by default, and how the output names it.

use highwater_notation::trace_from_text;
use highwater_snapshots::format::write_trace;
use highwater_snapshots::trace::{DeviceFacts, PINNED_DRIVER};
use highwater_snapshots::{DeviceId, Trace};

use crate::binary::{highwater, stdout};
use crate::sample::{answer, json};

/// Three devices and host memory: most blocks are on device 0, the highest peak and the failed request on device 1, and
/// host memory holds more than any device.
fn three() -> Trace {
    let mut text = "alloc h 90000000 input device=255\nstep 0\nphase forward\n".to_owned();
    for block in 0..9 {
        text += &format!("alloc a{block} 1000 activation < forward < main\n");
    }
    text += "alloc b 70000000 activation device=1 < gather < main\nalloc c 5000 device=2\n\
             free a0\noom 20000000 free=1000000 device=1 < gather < main\n";
    let trace = trace_from_text(&text).unwrap().edited(|trace| {
        trace.devices =
            vec![DeviceFacts { device: DeviceId(255), driver: PINNED_DRIVER.to_owned(), ..DeviceFacts::default() }];
    });
    // Facts are known before a trace is built; writing and reading builds it.
    let bytes = write_trace(Vec::new(), &trace).unwrap();
    highwater_snapshots::format::read_bytes(&bytes).unwrap()
}

#[test]
fn answers_are_of_the_device_that_ran_out_of_memory_and_say_so_first() {
    for (words, first) in [
        ("info a.snap", "Out of memory on device 1 of 3: "),
        ("info a.snap --device 0", "Peak on device 0 of 3: 8.79 KiB requested"),
        ("oom a.snap", "Out of memory on device 1 of 3: "),
        ("explain a.snap", "Peak on device 1 of 3: 66.76 MiB requested"),
        ("peak a.snap", "Peak on device 1 of 3: 66.76 MiB requested"),
        ("peak a.snap --at end", "On device 1 of 3: At event"),
        ("peak a.snap --device 0", "Peak on device 0 of 3: 8.79 KiB requested"),
        ("peak a.snap --device 255", "Peak in host memory: 85.83 MiB requested"),
        ("phases a.snap", "Peak on device 1 of 3: "),
        ("events a.snap", "On all 3 devices and host memory: Events 0 to"),
        ("events a.snap --device 2", "On device 2 of 3: Events 0 to"),
        ("verify a.snap", "On all 3 devices and host memory: Sound: "),
        ("verify a.snap --device 1", "On device 1 of 3: Sound: "),
        ("diff a.snap --at peak --at-b end", "On device 1 of 3: B takes as much as A: 66.76 MiB"),
    ] {
        let text = answer(three(), words).unwrap();
        assert!(text.starts_with(first), "{words}: {text}");
    }
    for words in ["peak a.snap --json", "phases a.snap --json", "check a.snap --max-peak 1GiB --json"] {
        assert_eq!(json(three(), words)["device"], 1, "{words}");
    }
    let text = answer(three(), "info a.snap").unwrap();
    assert!(text.lines().nth(1).unwrap().starts_with("Peak on device 1 of 3: 66.76 MiB requested"), "{text}");
    let at = |device: &str| text.find(&format!("\nDevice {device}:")).unwrap();
    assert!(at("1") < at("0") && at("0") < at("2"), "the default device leads: {text}");
}

#[test]
fn commands_to_try_next_ask_about_the_same_device_blocks_and_moments() {
    for (words, next) in [
        ("info a.snap --device 0 --categories none", "peak a.snap --device 0 --categories none"),
        ("peak a.snap --device 0 --at end --by frame", "phases a.snap --device 0"),
        ("phases a.snap --device 0 --where size>1", "peak a.snap --by frame --at 11 --device 0 --where 'size>1'"),
        ("explain a.snap --device 2 --metric allocated", "explain a.snap --by frame --device 2 --metric allocated"),
        ("oom a.snap", "explain a.snap --device 1"),
        ("events a.snap --kind oom", "peak a.snap --at 16 --device 1"),
        ("diff a.snap --at peak --at-b end", "explain a.snap"),
        ("check a.snap --max-peak 40MiB", "explain a.snap --device 1"),
        ("check a.snap --max-peak 1GiB --device 0", "peak a.snap --by frame --device 0"),
    ] {
        let text = answer(three(), words).unwrap();
        let last = text.lines().find(|line| line.starts_with("Next: ")).unwrap();
        assert!(last.starts_with(&format!("Next: highwater {next}   ")), "{words}: {last}");
    }
}

#[test]
fn a_budget_is_checked_on_every_device_and_its_cause_names_the_device() {
    let told = json(three(), "check a.snap --max-peak 40MiB --max activation=1KiB --json");
    assert_eq!(told["passed"], false);
    assert_eq!(told["devices"], serde_json::json!([0, 1, 2]), "host memory has no budget of a GPU");
    let broken = |rule: &str| -> Vec<u64> {
        let rows = told["broken"].as_array().unwrap().iter().filter(|row| row["rule"] == rule);
        rows.map(|row| row["device"].as_u64().unwrap()).collect()
    };
    assert_eq!((broken("max-peak"), broken("max activation")), (vec![1], vec![0, 1]));
    let text = answer(three(), "check a.snap --max-peak 40MiB --github").unwrap();
    assert!(text.starts_with("Failed: 1 of 1 budget exceeded on device 1 of 3.\n"), "{text}");
    assert!(text.contains("max-peak: 26.76 MiB over the limit, device 1 of 3, at event"), "{text}");
    assert!(text.contains("::error title=highwater check max-peak::On device 1 of 3: peak of requested is"), "{text}");
    let passed = answer(three(), "check a.snap --max-peak 1GiB").unwrap();
    let verdict = "Failed: the recording ends in an out-of-memory error on device 1 of 3, so 1 of 1 budget cannot be \
                   confirmed.\n";
    assert!(passed.starts_with(verdict), "{passed}");
    let narrowed = answer(three(), "check a.snap --max-peak 40MiB --device 0").unwrap();
    assert!(narrowed.starts_with("Passed: 1 budget met on device 0 of 3.\n"), "{narrowed}");
    // A phase that one device lacks is no reason to refuse the others.
    let phase = json(three(), "check a.snap --max-phase setup=40MiB --json --device 255");
    assert_eq!(phase["passed"], false);
}

#[test]
fn a_device_on_which_a_budget_cannot_be_measured_is_not_stated_to_meet_it() {
    let mut text = "alloc w 10\nalloc v 10 device=1\n".to_owned();
    for step in 0..4 {
        text += &format!("step {step}\nphase forward\nalloc a{step} 50\nfree a{step}\n");
    }
    text += "alloc b 70 device=1\n";
    let of = |words: &str| answer(trace_from_text(&text).unwrap(), words);
    let passed = of("check a.snap --max-step-growth 1KiB").unwrap();
    assert!(passed.starts_with("Passed: max-step-growth on device 0 of 2.\n"), "{passed}");
    let both = of("check a.snap --max-reserved 1GiB --max-step-growth 1KiB --max-peak 1GiB").unwrap();
    let expected = "Passed: max-peak, max-reserved on all 2 devices; max-step-growth on device 0 of 2.\n";
    assert!(both.starts_with(expected), "{both}");
    assert!(
        passed.contains("Not measured on device 1: max-step-growth: the recording has only one whole step"),
        "{passed}"
    );
    let told = json(trace_from_text(&text).unwrap(), "check a.snap --max-step-growth 1KiB --json");
    assert_eq!(told["unmeasured"][0]["device"], 1);
    let refused = of("check a.snap --max-step-growth 1KiB --device 1").unwrap_err().to_string();
    assert!(refused.contains("one whole step"), "{refused}");
}

#[test]
fn check_compares_each_device_with_the_same_device_of_the_baseline() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let bytes = write_trace(Vec::new(), &trace_from_text(text).unwrap()).unwrap();
        std::fs::write(folder.path().join(name), bytes).unwrap();
    };
    write("before.snap", "alloc a 500\nalloc b 100 device=1\n");
    write("now.snap", "alloc a 500\nalloc b 400 temporary device=1 < grow\n");
    let output = highwater(folder.path(), "check now.snap --baseline before.snap --max-growth 10%");
    assert_eq!(output.status.code(), Some(1));
    let text = stdout(&output);
    assert!(text.starts_with("Failed: 1 of 1 budget exceeded on device 1 of 2.\n"), "{text}");
    assert!(text.contains("On device 1 of 2: Differences from the baseline at the peak:"), "{text}");
    write("one.snap", "alloc a 500\n");
    let output = highwater(folder.path(), "check now.snap --baseline one.snap --max-growth 10%");
    assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
    let output = highwater(folder.path(), "check now.snap --baseline one.snap --max-growth 10% --device 0");
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
}

#[cfg(feature = "gui")]
#[test]
fn a_picture_shows_the_device_that_ran_out_of_memory() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.snap"), write_trace(Vec::new(), &three()).unwrap()).unwrap();
    let output = highwater(folder.path(), "render a.snap --out a.svg");
    assert!(stdout(&output).starts_with("On device 1 of 3: Wrote "), "{}", stdout(&output));
    let picture = std::fs::read_to_string(folder.path().join("a.svg")).unwrap();
    assert!(picture.contains("66.76 MiB"), "the peak is that of device 1");
}

#[test]
fn devices_without_memory_are_counted_in_one_line() {
    let trace = trace_from_text("alloc a 1000 activation\nmark snapshot device=1\nmark snapshot device=2\n").unwrap();
    let devices = [1, 2].map(|device| DeviceFacts { device: DeviceId(device), ..DeviceFacts::default() });
    let trace = trace.edited(|trace| trace.devices = devices.into());
    let bytes = write_trace(Vec::new(), &trace).unwrap();
    let trace = || highwater_snapshots::format::read_bytes(&bytes).unwrap();
    let text = answer(trace(), "info a.snap").unwrap();
    assert!(text.contains("\n2 other devices: no memory.\n") && !text.contains("\nDevice 1"), "{text}");
    let shown = answer(trace(), "info a.snap --device 1").unwrap();
    assert!(shown.contains("\nDevice 1"), "{shown}");
}
