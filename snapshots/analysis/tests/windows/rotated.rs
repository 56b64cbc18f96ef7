//! Tests that rotated files are read as one recording.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use highwater_analysis::phases::phases;
use highwater_analysis::summary::summarize;
use highwater_analysis::{Metric, Source};
use highwater_snapshots::byte_source::ByteSource;
use highwater_snapshots::event::{Event, What};
use highwater_snapshots::format::{EndFacts, SnapWriter, Windows, count_steps, read_bytes};
use highwater_snapshots::live_state::LiveState;
use highwater_snapshots::stage::Stage;
use highwater_snapshots::tables::Op;
use highwater_snapshots::trace::Header;
use highwater_snapshots::{DeviceId, ScopeId, StackId, StartingState, StringId};

use crate::compare;
use crate::program::{Numbers, events, watch};

/// What a recorder knows at a moment.
#[derive(Default)]
struct Now {
    states: BTreeMap<DeviceId, LiveState>,
    stage: Stage,
    marks: [Option<Event>; 2],
    events: u64,
}

impl Now {
    fn take(&mut self, event: &Event) {
        self.stage = self.stage.after(&event.what, self.events);
        let state = self.states.entry(event.device).or_default();
        state.apply(event, state.transition(&event.what), self.events, &self.stage);
        self.events += 1;
        match event.what {
            What::Step(_) => self.marks[0] = Some(*event),
            What::Phase(_) => self.marks[1] = Some(*event),
            _ => {}
        }
    }
}

/// Writes a file with these names of operations.
pub(crate) fn write(
    names: [&str; 2],
    texts: &[&str],
    states: &[StartingState],
    ops: u32,
    events: &[&[Event]],
) -> Vec<u8> {
    let mut writer = SnapWriter::new(Vec::new(), &Header::default()).unwrap();
    writer.set_checkpoint_interval(600);
    writer.append_strings(&[&names[..], texts].concat()).unwrap();
    let named = |number: u32| if names[0] == "linear" { number % 2 } else { (number + 1) % 2 };
    let op = |number| Op { name: StringId(named(number)), scope: ScopeId::NONE, stack: StackId::NONE };
    writer.append_ops(&(0..ops).map(op).collect::<Vec<_>>()).unwrap();
    states.iter().for_each(|state| writer.write_starting_state(state).unwrap());
    for run in events {
        run.chunks(170).for_each(|events| writer.write_events(events).unwrap());
    }
    writer.finish(&EndFacts::default()).unwrap()
}

/// The bytes of a recording, of which the first `first` events are missing, and those of the files of it, which begin
/// with these events.
fn rotated(seed: u64, steps: u32, begins: &[usize], missing: usize) -> (Vec<u8>, Vec<Vec<u8>>) {
    let (events, state, ops) = events(seed, steps);
    let mut now = Now::default();
    now.states.insert(state.device, LiveState::from(&state));
    let (mut files, mut all, mut first) = (Vec::new(), Vec::new(), vec![state.clone()]);
    for (file, begin) in begins.iter().enumerate() {
        let end = begins.get(file + 1).copied().unwrap_or(events.len());
        let own = &events[*begin..end];
        let states: Vec<StartingState> = now.states.iter().map(|(device, live)| live.state(*device)).collect();
        let repeated: Vec<Event> = now.marks.iter().flatten().copied().collect();
        let names = if file % 2 == 0 { ["linear", "add"] } else { ["add", "linear"] };
        if file >= missing {
            files.push(write(names, &[], &states, ops, &[&repeated, own]));
            if file == missing {
                (first, all) = (states, Vec::new());
            }
            // The other files repeat the step and the phase as marks.
            let text = What::Mark(StringId(2 + (file - missing) as u32));
            let is_first = file == missing;
            all.extend(repeated.iter().map(|event| if is_first { *event } else { Event { what: text, ..*event } }));
            all.extend_from_slice(own);
        }
        own.iter().for_each(|event| now.take(event));
    }
    let texts: Vec<String> = (0..files.len()).map(|file| format!("{file} begins")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    (write(["linear", "add"], &texts, &first, ops, &[&all]), files)
}

fn open(files: &[Vec<u8>]) -> Windows {
    let source = |bytes: &Vec<u8>| -> Arc<dyn ByteSource> { Arc::new(Arc::<[u8]>::from(bytes.as_slice())) };
    let sources = files.iter().enumerate().map(|(number, bytes)| (number.to_string(), source(bytes)));
    Windows::open_files(sources.collect(), &(), &mut |_| ControlFlow::Continue(())).unwrap()
}

fn check(seed: u64, begins: &[usize], missing: usize) {
    let (whole, files) = rotated(seed, 16, begins, missing);
    let (whole, windows) = (read_bytes(&whole).unwrap(), open(&files));
    let count = whole.events.len();
    assert_eq!(windows.events() as usize, count);
    assert_eq!(windows.main_device(), whole.main_device());
    let mut numbers = Numbers(seed);
    for _ in 0..12 {
        let start = numbers.below(count as u64 + 1) as usize;
        let end = start + numbers.below((count + 1 - start) as u64) as usize;
        compare(&whole, &windows, start, end);
    }
    compare(&whole, &windows, 0, count);
    assert!(count_steps(windows.summaries(), &whole.device_ids()).is_some(), "counted without reading events");
    let all = Source::in_memory(windows.whole().unwrap());
    let source = Source::in_windows(windows).unwrap().in_windows_of(700);
    let mark = whole.events.kind.iter().filter(|kind| **kind == highwater_snapshots::event::EventKind::Mark).count();
    assert_eq!(mark, 2 * (files.len() - 1), "each later file begins with marks");
    let whole = Source::in_memory(whole);
    let expected = summarize(&whole, watch()).unwrap();
    assert_eq!(summarize(&all, watch()).unwrap(), expected);
    assert_eq!(summarize(&source, watch()).unwrap(), expected);
    for device in whole.facts().device_ids() {
        for metric in Metric::ALL {
            let rows = |source: &Source<'_>| {
                phases(source.facts(), device, metric, source.stages(device, metric, watch()).unwrap())
            };
            assert!(rows(&source) == rows(&whole), "{metric} of {device:?}");
        }
    }
}

#[test]
fn the_files_of_a_rotation_have_the_events_totals_and_lifetimes_of_one_recording() {
    for seed in 0..3 {
        check(seed, &[0, 900, 950, 3100, 5000], 0);
    }
}

#[test]
fn a_recording_whose_first_files_are_gone_begins_with_what_was_live() {
    for seed in 0..3 {
        check(seed, &[0, 900, 950, 3100, 5000], 2);
    }
}

#[test]
fn a_file_of_another_recording_is_refused() {
    let (_, mut files) = rotated(1, 4, &[0, 900], 0);
    let header = Header { pid: 7, ..Header::default() };
    files.push(SnapWriter::new(Vec::new(), &header).unwrap().finish(&EndFacts::default()).unwrap());
    let sources = files.iter().map(|bytes| {
        let source: Arc<dyn ByteSource> = Arc::new(Arc::<[u8]>::from(bytes.as_slice()));
        ("file".to_owned(), source)
    });
    let refused = Windows::open_files(sources.collect(), &(), &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert!(refused.to_string().contains("it belongs to another recording"), "{refused}");
}
