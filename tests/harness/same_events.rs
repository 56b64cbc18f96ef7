//! Compares the events of two recordings, ignoring times and addresses.

use highwater_snapshots::event::EventKind;
use highwater_snapshots::text::event_text;
use highwater_snapshots::{EventId, Trace};

/// Where two recordings differ first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// How many events before are the same.
    pub same: usize,
    /// What each recording says there; nothing where it ends.
    pub lines: [Option<String>; 2],
}

/// Each event as a line of text: what happened to which block, of what size, category, operation and module. Without
/// times, addresses, devices and stacks, and without samples of what a whole device has in use, which only a GPU's
/// driver knows.
pub fn lines(trace: &Trace) -> Vec<String> {
    let is_sample = |id: EventId| trace.events.kind[id.index().unwrap_or_default()] == EventKind::DeviceUsed;
    trace.events.ids().filter(|&id| !is_sample(id)).map(|id| without_place(&event_text(trace, id))).collect()
}

fn without_place(line: &str) -> String {
    let words = line.split(" < ").next().unwrap_or_default().split(' ');
    words.filter(|word| !word.starts_with("0x") && !word.starts_with("device=")).collect::<Vec<_>>().join(" ")
}

/// Where two lists of [`lines`] differ first, if they do.
pub fn difference(one: &[String], other: &[String]) -> Option<Difference> {
    let same = one.iter().zip(other).take_while(|(one, other)| one == other).count();
    let lines = [one, other].map(|lines| lines.get(same).cloned());
    (lines != [None, None]).then_some(Difference { same, lines })
}
