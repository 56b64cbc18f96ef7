//! Tests that a recording read in parts gives the same output as one read as a whole.

use highwater_notation::trace_from_text;
use highwater_snapshots::format::write_trace;

use crate::binary::{folder, highwater_with, names, stderr, stdout};

const QUESTIONS: [&str; 47] = [
    "info FILE",
    "info FILE --json",
    "info FILE --device 0 --json",
    "peak FILE",
    "peak FILE --json",
    "peak FILE --by scope,op,lifetime,step,phase --json",
    "peak FILE --by frame --metric allocated",
    "peak FILE --metric reserved --json",
    "peak FILE --at 5 --json",
    "peak FILE --at start",
    "peak FILE --at 500000",
    "phases FILE",
    "phases FILE --metric active --json",
    "phases FILE --where category=activation --json",
    "phases FILE --from-step 1 --to-step 1",
    "growth FILE",
    "growth FILE --json",
    "growth FILE --from-step 0 --by stack,op --json",
    "growth FILE --where category=activation --metric allocated --device 0",
    "growth FILE --from-step 9",
    "growth FILE --to-step 9",
    "events FILE --json",
    "events FILE --from 3 --to 9 --stacks",
    "events FILE --from 2 --kind alloc,free_requested --json",
    "events FILE --where size>=1 --device 0",
    "events FILE --from 12 --to 5",
    "events FILE --from 1000000",
    "oom FILE",
    "oom FILE --json",
    "oom FILE --event 3",
    "oom FILE --device 0 --top 1",
    "check FILE --max-peak 1GiB",
    "check FILE --max-reserved 1 --max activation=1 --max-phase forward=1 --json",
    "check FILE --max-step-growth 1 --metric allocated",
    "check FILE --max-growth 0% --baseline step.snap --top 3",
    "check FILE --max-growth 1% --baseline FILE --max-peak 1 --metric active --json",
    "check FILE --max-phase recompute=1",
    "verify FILE",
    "verify FILE --device 0 --json",
    "explain FILE",
    "explain FILE --json",
    "explain FILE --by scope,op --json",
    "explain FILE --by frame --metric active --json",
    "explain FILE --where category=activation --json",
    "explain FILE --by lifetime,step,size --top 3 --device 0 --json",
    "whatif FILE --until-last-use category=activation --json",
    "whatif FILE --without size>=1 --json",
];

#[test]
fn a_recording_read_in_parts_gives_the_answers_of_the_whole() {
    let (folder, bytes) = folder();
    let mut cut = bytes.clone();
    cut.truncate(bytes.len() * 4 / 5);
    let mut damaged = bytes;
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0x10;
    std::fs::write(folder.path().join("cut.snap"), cut).unwrap();
    std::fs::write(folder.path().join("damaged.snap"), damaged).unwrap();
    // Two steps alike, a failed request, a free of an unknown block, and two devices.
    let step = "phase forward\nalloc a 70\nalloc b 30 device=1\nfree a\nphase backward\nalloc g 100\nfree g\nfree b device=1\n";
    let text = format!("baseline w 10\nstep 0\n{step}step 1\n{step}free gone\noom 4096 free=7\ndevice_used 900\n");
    let steps = write_trace(Vec::new(), &trace_from_text(&text).unwrap()).unwrap();
    std::fs::write(folder.path().join("steps.snap"), steps).unwrap();
    for file in ["step.snap", "cut.snap", "damaged.snap", "steps.snap"] {
        for question in QUESTIONS {
            let words = question.replace("FILE", file);
            let [whole, parts] = ["1000000", "0"].map(|most| highwater_with(folder.path(), &words, most));
            assert_eq!(stdout(&parts), stdout(&whole), "{words}");
            assert_eq!(stderr(&parts), stderr(&whole), "{words}");
            assert_eq!(parts.status.code(), whole.status.code(), "{words}");
        }
    }
    for file in ["step.snap", "steps.snap"] {
        let parts = ["1000000", "0"].map(|most| {
            let made = highwater_with(folder.path(), &format!("convert {file} part.snap --events 4..15 --json"), most);
            assert!(made.status.success(), "{}", stderr(&made));
            let told = ["info part.snap", "peak part.snap --by category,op --json", "phases part.snap --json"];
            told.map(|question| stdout(&highwater_with(folder.path(), question, "1000000")))
        });
        assert_eq!(parts[0], parts[1], "{file}");
    }
    for file in ["step.snap", "damaged.snap", "steps.snap"] {
        let parts = ["1000000", "0"].map(|most| {
            let tables = ["events.parquet", "blocks.parquet --table blocks"].into_iter();
            let tables = tables.filter(|_| cfg!(feature = "parquet"));
            for to in ["copy.snap", "copy.folded"].into_iter().chain(tables) {
                let made = highwater_with(folder.path(), &format!("convert {file} {to}"), most);
                assert!(made.status.success(), "{}", stderr(&made));
            }
            let asked = ["info copy.snap --json", "peak copy.snap --by stack,op --json", "events copy.snap --json"];
            let answers = asked.map(|question| stdout(&highwater_with(folder.path(), question, "1000000")));
            let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
            (answers, read("copy.folded"))
        });
        assert!(parts[0] == parts[1], "{file}");
        let made = highwater_with(folder.path(), &format!("convert {file} copy.folded"), "0");
        let whole = highwater_with(folder.path(), &format!("convert {file} copy.folded"), "1000000");
        assert_eq!(stdout(&made), stdout(&whole), "{file}");
        if cfg!(feature = "parquet") {
            let sets = ["1000000", "0"].map(|most| {
                let made = highwater_with(folder.path(), &format!("convert {file} --to parquet set"), most);
                std::fs::remove_dir_all(folder.path().join("set")).unwrap();
                let counts = stdout(&made).lines().filter(|line| line.contains("events")).collect::<String>();
                assert!(!counts.is_empty(), "{made:?}");
                (counts, stderr(&made), made.status.code())
            });
            assert_eq!(sets[0], sets[1], "{file}");
        }
    }
    let wrong = highwater_with(folder.path(), "peak step.snap", "many");
    assert!(stderr(&wrong).contains("HIGHWATER_RESIDENT_EVENTS=many: expected a number of events"), "{wrong:?}");
}

#[test]
fn computed_summaries_are_kept_in_the_users_cache_until_the_recording_changes() {
    let (folder, bytes) = folder();
    let cache = folder.path().join("cache/highwater/summaries");
    let info = |most| stdout(&highwater_with(folder.path(), "info step.snap", most));
    let expected = info("1000000");
    assert!(!cache.exists(), "a recording that fits in memory needs none");
    assert_eq!(info("0"), expected);
    let [entry] = &names(&cache)[..] else { panic!("{:?}", names(&cache)) };
    let entry = cache.join(entry);
    let kept = std::fs::read(&entry).unwrap();
    let end = kept.len() - 1;
    for damaged in [&kept[..end], b"", &[&kept[..end], b"."].concat()] {
        std::fs::write(&entry, damaged).unwrap();
        assert_eq!(info("0"), expected);
        assert_eq!(std::fs::read(&entry).unwrap(), kept);
    }
    let text = "step 0\nalloc a 70\nalloc b 30\nfree a\n";
    std::fs::write(folder.path().join("step.snap"), write_trace(Vec::new(), &trace_from_text(text).unwrap()).unwrap())
        .unwrap();
    assert_eq!(info("0"), info("1000000"));
    assert_eq!(names(&cache).len(), 1);
    assert_ne!(std::fs::read(&entry).unwrap(), kept);
    std::fs::write(folder.path().join("step.snap"), bytes).unwrap();
    std::fs::remove_dir_all(&cache).unwrap();
    std::fs::write(&cache, "a file where the folder should be").unwrap();
    assert_eq!(info("0"), expected);
}

#[test]
#[cfg(feature = "gui")]
fn a_long_recording_is_drawn_from_its_summaries_and_the_window_of_the_moment() {
    let (folder, _) = folder();
    let drawn = |options: &str, most: &str| {
        let words = format!("render step.snap --out a.svg {options}");
        let made = highwater_with(folder.path(), &words, most);
        assert!(made.status.success(), "{words}: {}", stderr(&made));
        std::fs::read_to_string(folder.path().join("a.svg")).unwrap()
    };
    let whole = drawn("", "0");
    for text in ["Requested memory by event, the largest in each pixel column", ">Peak 20.98 KiB<", ">step 1<"] {
        assert!(whole.contains(text), "{text}: {whole}");
    }
    assert!(drawn("--metric reserved", "0").contains("At the peak of reserved"));
    let part = drawn("--from 1 --to 6", "0");
    assert!(part.contains(">events 1 to 6 of ") && part.contains(" in this part ("), "{part}");
    for view in ["--view table --by scope", "--view treemap", "--view flame --at 9", "--view table --by lifetime"] {
        assert_eq!(drawn(view, "0"), drawn(view, "1000000"), "{view}");
    }
    // The explanation is of the whole, below its chart.
    let explained = ["0", "1000000"].map(|most| drawn("--view explain", most));
    let groups = |text: &str| -> Option<String> {
        let from = text.find(">Total of ")?;
        text[from..].split('<').next().map(str::to_owned)
    };
    assert!(groups(&explained[0]).is_some(), "{}", explained[0]);
    assert_eq!(groups(&explained[0]), groups(&explained[1]));
    for (options, why) in [
        ("--by stack", "--by is not supported for more than 4,194,304 events; choose fewer with --from and --to"),
        ("--axis time", "--axis time is not supported for more than"),
        ("--where size>=1", "--where is not supported for more than"),
        ("--view table --at 100000", "invalid value '100000' for --at: expected an event from 0 to"),
        ("--from 100000", "invalid value '100000' for --from: expected an event from 0 to"),
    ] {
        let made = highwater_with(folder.path(), &format!("render step.snap --out a.svg {options}"), "0");
        assert!(stderr(&made).contains(why), "{options}: {}", stderr(&made));
    }
}
