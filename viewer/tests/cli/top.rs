//! Tests the screen of `top` for recordings that are complete, that grow, and that are replaced.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use highwater::top::{Answer, Choice, Computed, State, Watched, draw};
use highwater_analysis::{GroupKey, Metric};
use highwater_snapshots::format::write_trace;
use highwater_snapshots::units::format_bytes;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::Value;

use crate::binary::{highwater, highwater_with, stderr, stdout};
use crate::sample::trace;

const CHOICE: Choice = Choice { metric: Metric::Requested, key: GroupKey::Scope, row: 0, device: 0 };

/// A folder with `mlp.snap`, two steps of a built-in model.
fn recorded() -> (tempfile::TempDir, PathBuf) {
    /// Recorded by another process: this one may have a recording of another test.
    static RECORDED: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let folder = tempfile::tempdir().unwrap();
        let output = highwater(folder.path(), "record mlp --steps 2 --out mlp.snap");
        assert!(output.status.success(), "{}", stderr(&output));
        std::fs::read(folder.path().join("mlp.snap")).unwrap()
    });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mlp.snap");
    std::fs::write(&file, &*RECORDED).unwrap();
    (folder, file)
}

fn read(watched: &mut Watched) {
    while watched.look(Duration::from_secs(60)) {}
}

fn answered(watched: &mut Watched, choice: Choice) -> Answer {
    read(watched);
    Computed::default().answer(std::slice::from_mut(watched), choice)
}

/// The lines of a terminal of this size.
fn screen(answer: &Answer, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(answer, frame)).unwrap();
    let buffer = terminal.backend().buffer().clone();
    let line = |row: u16| (0..width).map(|column| buffer[(column, row)].symbol()).collect::<String>();
    (0..height).map(line).collect()
}

fn json(folder: &Path, words: &str) -> Value {
    let output = highwater(folder, words);
    serde_json::from_str(&stdout(&output)).unwrap_or_else(|why| panic!("{why}: {}", stderr(&output)))
}

/// Compares the totals with those of `info`, and the groups at the peak with those of `peak`.
fn assert_agrees(answer: &Answer, folder: &Path, file: &str) {
    let detail = answer.detail.as_ref().unwrap();
    let info = json(folder, &format!("info {file} --json"));
    let device = &info["devices"][0];
    assert_eq!(detail.events, device["events"].as_u64().unwrap() + stage_events(folder, file));
    for metric in Metric::ALL {
        let peak = detail.peaks[metric as usize];
        let expected = &device["peaks"][metric.name()];
        assert_eq!(peak.bytes, expected["bytes"].as_u64().unwrap_or(0), "peak of {metric}");
        if let Some(event) = expected["event"].as_u64() {
            assert_eq!(peak.position, event + 1, "peak of {metric}");
        }
        assert_eq!(detail.totals.get(metric), device["end"][metric.name()].as_u64().unwrap_or(0), "end of {metric}");
    }
    let (metric, key) = (answer.choice.metric, answer.choice.key);
    let peak = json(folder, &format!("peak {file} --metric {metric} --by {key} --top 100000 --json"));
    assert_eq!(detail.peaks[metric as usize].bytes, peak["bytes"].as_u64().unwrap());
    assert_eq!(u64::from(detail.peaks[metric as usize].stage.step.unwrap_or(0)), peak["step"].as_u64().unwrap_or(0));
    let rows = &detail.groups[1].rows;
    let expected: Vec<(&str, u64)> = peak["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| (group["key"].as_str().unwrap(), group["bytes"].as_u64().unwrap()))
        .collect();
    for (label, bytes) in &expected {
        let row = rows.iter().find(|row| row.label == *label).unwrap_or_else(|| panic!("{label} by {key}"));
        assert_eq!(row.peak, *bytes, "{label} by {key} of {metric}");
    }
    for groups in &detail.groups {
        assert_eq!(groups.rows.iter().map(|row| row.peak).sum::<u64>(), peak["bytes"].as_u64().unwrap(), "{key}");
        assert_eq!(groups.rows.iter().map(|row| row.now).sum::<u64>(), detail.totals.get(metric), "{key}");
    }
}

/// The number of events that are marks of steps and phases.
fn stage_events(folder: &Path, file: &str) -> u64 {
    let count = |kind| json(folder, &format!("events {file} --kind {kind} --json"))["events"].as_array().unwrap().len();
    (count("step") + count("phase")) as u64
}

#[test]
fn every_sum_on_the_screen_is_that_of_the_other_commands() {
    let (folder, file) = recorded();
    let mut watched = Watched::new(&file, "mlp.snap");
    for metric in [Metric::Requested, Metric::Active, Metric::Reserved] {
        for key in [GroupKey::Scope, GroupKey::Category, GroupKey::Phase, GroupKey::Step, GroupKey::Op, GroupKey::Pool]
        {
            let answer = answered(&mut watched, Choice { metric, key, ..CHOICE });
            assert_agrees(&answer, folder.path(), "mlp.snap");
        }
    }
    let answer = answered(&mut watched, CHOICE);
    let detail = answer.detail.as_ref().unwrap();
    assert_eq!(detail.state, State::Complete);
    let phases = json(folder.path(), "phases mlp.snap --json");
    for step in &detail.steps {
        let rows = phases["rows"].as_array().unwrap().iter().filter(|row| row["step"] == step.step);
        let peak = rows.map(|row| row["peak_bytes"].as_u64().unwrap()).max();
        assert_eq!(Some(step.peak.requested), peak, "step {}", step.step);
    }
    for (width, height) in [(80, 24), (200, 50), (120, 30)] {
        let lines = screen(&answer, width, height);
        let text = lines.join("\n");
        assert!(lines[0].starts_with("highwater top  mlp.snap"), "{text}");
        assert!(lines[1].starts_with("complete"), "{text}");
        let peak = format_bytes(detail.peaks[0].bytes);
        assert!(lines[3].contains(&format_bytes(detail.totals.requested)), "{text}");
        assert!(lines[4].contains(&peak), "{text}");
        assert!(lines[5].trim_start().starts_with(&peak) && text.contains('█'), "{text}");
        let row = detail.groups[1].rows.first().unwrap();
        assert!(text.contains(&row.label) && text.contains(&format_bytes(row.peak)), "{text}");
        assert_eq!(text.contains("category"), width >= 120, "{text}");
        assert!(
            text.contains("at peak") && text.contains("step  ") && lines.last().unwrap().starts_with("q quit"),
            "{text}"
        );
    }
    for (width, height) in [(1, 1), (10, 3), (30, 8)] {
        screen(&answer, width, height);
    }
}

#[test]
fn rows_that_do_not_fit_are_summed() {
    let (_folder, file) = recorded();
    let answer = answered(&mut Watched::new(&file, "mlp.snap"), CHOICE);
    let groups = &answer.detail.as_ref().unwrap().groups[1];
    let sum = |most| groups.at_most(most).iter().map(|row| row.peak).sum::<u64>();
    let count = groups.rows.len();
    assert!(count > 3, "{groups:?}");
    for most in 1..=count {
        assert_eq!((groups.at_most(most).len(), sum(most)), (most, sum(count)));
    }
    assert_eq!(groups.at_most(2)[1].label, format!("{} more", count - 1));
}

#[test]
fn a_recording_that_grows_is_followed_to_its_end() {
    let (folder, file) = recorded();
    let bytes = std::fs::read(&file).unwrap();
    let growing = folder.path().join("growing.snap");
    std::fs::write(&growing, "").unwrap();
    let mut watched = Watched::new(&growing, "growing.snap");
    let answer = answered(&mut watched, CHOICE);
    assert_eq!(watched.state, State::Waiting);
    assert!(screen(&answer, 80, 24)[1].starts_with("no events yet"));
    let mut events = Vec::new();
    for part in 1..=20 {
        std::fs::write(&growing, &bytes[..bytes.len() * part / 20]).unwrap();
        let answer = answered(&mut watched, CHOICE);
        let detail = answer.detail.as_ref().unwrap();
        assert_eq!(detail.notes, [] as [String; 0]);
        events.push(detail.events);
        assert_eq!(detail.groups[1].rows.iter().map(|row| row.now).sum::<u64>(), detail.totals.requested);
        assert_eq!(detail.groups[1].rows.iter().map(|row| row.peak).sum::<u64>(), detail.peaks[0].bytes);
    }
    assert!(events.is_sorted() && events[0] < events[19], "{events:?}");
    assert_agrees(&answered(&mut watched, CHOICE), folder.path(), "mlp.snap");
    assert_eq!(watched.state, State::Complete);
}

#[test]
fn a_file_that_its_program_saved_is_not_taken_for_the_whole_recording() {
    let note = "saved while the program was running: what it did afterwards is missing";
    let saved = trace().edited(|trace| trace.header.facts.push(("note".to_owned(), note.to_owned())));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("train.snap");
    let mut watched = Watched::new(&file, "train.snap");
    for _ in 0..2 {
        let hidden = folder.path().join("hidden");
        std::fs::write(&hidden, write_trace(Vec::new(), &saved).unwrap()).unwrap();
        std::fs::rename(&hidden, &file).unwrap();
        let lines = screen(&answered(&mut watched, CHOICE), 100, 24);
        assert!(matches!(watched.state, State::Saved(_)) && lines[1].starts_with("saved 0 s ago"), "{lines:?}");
        assert_eq!(watched.note(), None, "each save replaces the file");
    }
    std::fs::write(&file, write_trace(Vec::new(), &trace()).unwrap()).unwrap();
    answered(&mut watched, CHOICE);
    assert_eq!(watched.state, State::Complete);
}

#[test]
fn a_file_that_is_not_what_it_was_gives_a_message_and_not_the_end() {
    let (folder, file) = recorded();
    let bytes = std::fs::read(&file).unwrap();
    let mut watched = Watched::new(&file, "mlp.snap");
    let whole = answered(&mut watched, CHOICE).detail.unwrap();
    let after = |watched: &mut Watched| {
        let answer = answered(watched, CHOICE);
        let lines = screen(&answer, 100, 24);
        (answer.detail.unwrap(), lines)
    };
    std::fs::remove_file(&file).unwrap();
    let (detail, lines) = after(&mut watched);
    assert!(lines[2].contains("moved or deleted"), "{lines:?}");
    assert_eq!(detail.peaks, whole.peaks, "what was read stays");

    std::fs::write(&file, write_trace(Vec::new(), &trace()).unwrap()).unwrap();
    let (detail, lines) = after(&mut watched);
    assert!(lines[2].contains("another recording has replaced the previous one; showing the new one"), "{lines:?}");
    assert_agrees(&answered(&mut watched, CHOICE), folder.path(), "mlp.snap");
    assert!(detail.events < whole.events);

    std::fs::write(&file, &bytes).unwrap();
    let (detail, lines) = after(&mut watched);
    assert!(lines[2].contains("overwritten"), "{lines:?}");
    assert_eq!(detail.peaks, whole.peaks);

    std::fs::write(&file, &bytes[..bytes.len() / 3]).unwrap();
    let (detail, lines) = after(&mut watched);
    assert!(lines[2].contains("the file was truncated; reading it again"), "{lines:?}");
    // A busy program may have written its first events after a third of the file.
    let may_grow = matches!(detail.state, State::Growing | State::Waiting);
    assert!(detail.events < whole.events && may_grow, "it was truncated, and may grow again: {:?}", detail.state);

    let mut damaged = bytes.clone();
    let middle = bytes.len() / 2;
    damaged[middle..middle + 64].iter_mut().for_each(|byte| *byte ^= 0x55);
    let other = folder.path().join("damaged.snap");
    std::fs::write(&other, damaged).unwrap();
    let (detail, lines) = after(&mut Watched::new(&other, "damaged.snap"));
    assert!(!detail.notes.is_empty() && !lines[2].trim().is_empty(), "{lines:?}");

    std::fs::write(&other, "Dear all, this is not a recording").unwrap();
    let mut letter = Watched::new(&other, "damaged.snap");
    let (_, lines) = after(&mut letter);
    assert!(lines[1].starts_with("cannot be read") && lines[2].contains("not a recording"), "{lines:?}");
}

#[test]
fn a_snapshot_of_pytorch_is_shown_once() {
    let (folder, _) = recorded();
    assert!(highwater(folder.path(), "convert mlp.snap mlp.pickle").status.success());
    let pickle = folder.path().join("mlp.pickle");
    let mut watched = Watched::new(&pickle, "mlp.pickle");
    let answer = answered(&mut watched, Choice { key: GroupKey::Category, ..CHOICE });
    assert_eq!(answer.detail.as_ref().unwrap().state, State::Complete);
    let peak = json(folder.path(), "peak mlp.pickle --json");
    assert_eq!(answer.detail.unwrap().peaks[0].bytes, peak["bytes"].as_u64().unwrap());
}

#[test]
fn a_folder_has_a_line_for_each_rank() {
    let (folder, file) = recorded();
    let ranks = folder.path().join("ranks");
    for rank in 0..8 {
        let sub = ranks.join(format!("rank{rank}"));
        std::fs::create_dir_all(&sub).unwrap();
        std::fs::copy(&file, sub.join("step.snap")).unwrap();
    }
    std::fs::write(ranks.join("notes.txt"), "none").unwrap();
    let mut all: Vec<Watched> = (0..8)
        .map(|rank| Watched::new(&ranks.join(format!("rank{rank}/step.snap")), &format!("rank{rank}/step.snap")))
        .collect();
    all.iter_mut().for_each(read);
    for row in 0..8 {
        let answer = Computed::default().answer(&mut all, Choice { row, ..CHOICE });
        for (width, height) in [(80, 24), (200, 50)] {
            let text = screen(&answer, width, height).join("\n");
            assert!(text.contains(&format!("rank{row}/step.snap")), "the chosen one is in view: {text}");
            assert!(text.contains("over time"), "{text}");
            assert_eq!(text.matches("/step.snap").count(), 9, "all, and the title: {text}");
        }
        let text = screen(&answer, 80, 16).join("\n");
        let first = (row + 1).max(5) - 4;
        assert!(text.contains(&format!("{first} to {} of 8", first + 4)), "{text}");
    }
    let printed = highwater(folder.path(), "top ranks");
    assert!(printed.status.success(), "{}", stderr(&printed));
    let text = stdout(&printed);
    assert!((0..8).all(|rank| text.matches(&format!("rank{rank}/step.snap")).count() == 2), "{text}");
    assert!(!text.contains("notes.txt"));
}

#[test]
fn in_a_pipe_it_is_printed_once() {
    let (folder, _) = recorded();
    let printed = highwater(folder.path(), "top mlp.snap --metric reserved --by phase");
    assert!(printed.status.success() && stderr(&printed).is_empty(), "{}", stderr(&printed));
    let text = stdout(&printed);
    let info = json(folder.path(), "info mlp.snap --json");
    let bytes = |value: &Value| format_bytes(value.as_u64().unwrap());
    let device = &info["devices"][0];
    assert!(text.starts_with("mlp.snap: "), "{text}");
    assert!(text.contains(&format!("{} reserved now", bytes(&device["end"]["reserved"]))), "{text}");
    assert!(text.contains(&format!("{} at the peak", bytes(&device["peaks"]["reserved"]["bytes"]))), "{text}");
    for (word, reason) in
        [("none.snap", "no such file, folder or process"), ("mlp.snap --by scope,op", "expected one key")]
    {
        let refused = highwater(folder.path(), &format!("top {word}"));
        assert_eq!(refused.status.code(), Some(2));
        assert!(stderr(&refused).contains(reason), "{}", stderr(&refused));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_process_is_watched_by_the_recordings_that_it_writes() {
    let (folder, file) = recorded();
    let mut sleeps = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let none = highwater(folder.path(), &format!("top {}", sleeps.id()));
    assert_eq!(none.status.code(), Some(2));
    assert!(stderr(&none).contains(&format!("highwater attach {}", sleeps.id())), "{}", stderr(&none));
    sleeps.kill().unwrap();
    sleeps.wait().unwrap();
    let input = std::fs::File::open(&file).unwrap();
    let mut reads = std::process::Command::new("sleep").arg("600").stdin(input).spawn().unwrap();
    let found = highwater(folder.path(), &format!("top {}", reads.id()));
    reads.kill().unwrap();
    reads.wait().unwrap();
    assert!(stdout(&found).starts_with("mlp.snap: "), "{}{}", stdout(&found), stderr(&found));
    let gone = highwater(folder.path(), &format!("top {}", reads.id()));
    assert!(stderr(&gone).contains("no such process or file"), "{}", stderr(&gone));
}

/// Compares a rotation with the same recording in one file.
pub(crate) fn assert_rotation_is_whole(folder: &Path, rotation: &str, whole: &str) {
    let mut watched = Watched::new(&folder.join(rotation), rotation);
    let answer = answered(&mut watched, Choice { key: GroupKey::Category, ..CHOICE });
    let detail = answer.detail.as_ref().unwrap();
    let info = highwater_with(folder, &format!("info {whole} --json"), "1000000");
    let info: Value = serde_json::from_slice(&info.stdout).unwrap();
    let device = &info["devices"][0];
    for metric in [Metric::Requested, Metric::Allocated, Metric::Active] {
        assert_eq!(detail.peaks[metric as usize].bytes, device["peaks"][metric.name()]["bytes"].as_u64().unwrap());
        assert_eq!(detail.totals.get(metric), device["end"][metric.name()].as_u64().unwrap());
    }
    let groups = &detail.groups[1];
    assert!(groups.has_peak);
    assert_eq!(groups.rows.iter().map(|row| row.peak).sum::<u64>(), detail.peaks[0].bytes);
    assert_eq!(groups.rows.iter().map(|row| row.now).sum::<u64>(), detail.totals.requested);
}
