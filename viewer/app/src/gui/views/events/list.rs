//! Selects the events to list, on a background thread.

use std::sync::Arc;

use highwater_analysis::Matches;
use highwater_snapshots::{BlockId, DeviceId, EventId, EventKind, Trace};
use rayon::prelude::*;

use super::words::Group;
use crate::gui::views::view::OfDevice;
use crate::gui::widgets::Cancel;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kinds(u8);

impl Default for Kinds {
    fn default() -> Self {
        Self((1 << Group::ALL.len()) - 1)
    }
}

impl Kinds {
    pub(super) fn contains(self, group: Group) -> bool {
        self.0 & 1 << group as u8 != 0
    }

    /// Toggles whether a group is listed.
    pub(super) fn toggle(&mut self, group: Group) {
        self.0 ^= 1 << group as u8;
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wanted {
    pub of: OfDevice,
    pub kinds: Kinds,
    /// Events without a block are always listed.
    pub matches: Arc<Matches>,
}

/// The listed events, by row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Listed {
    /// All events of the recording, of which there are this many.
    All(usize),
    /// The events with these indices, in order.
    Some(Vec<u32>),
}

impl Listed {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::All(count) => *count,
            Self::Some(events) => events.len(),
        }
    }

    pub(super) fn event(&self, row: usize) -> Option<EventId> {
        match self {
            Self::All(count) => (row < *count).then_some(EventId(row as u32)),
            Self::Some(events) => events.get(row).copied().map(EventId),
        }
    }

    /// The row of event `id`, or the row where it would be inserted.
    pub(super) fn row_of(&self, id: EventId) -> Result<usize, usize> {
        match self {
            Self::All(count) if (id.0 as usize) < *count => Ok(id.0 as usize),
            Self::All(count) => Err(*count),
            Self::Some(events) => events.binary_search(&id.0),
        }
    }
}

/// Number of events per chunk of work.
const RUN: usize = 1 << 16;

/// Selects the events; `None` if cancelled, or if the recording was closed.
pub(super) fn list(wanted: &Wanted, cancel: &Cancel) -> Option<Arc<Listed>> {
    let recording = wanted.of.recording.get()?;
    let trace = &recording.trace;
    let device = recording.devices.get(wanted.of.device)?.device;
    let count = trace.events.len();
    let runs: Option<Vec<Vec<u32>>> = (0..count.div_ceil(RUN))
        .into_par_iter()
        .map(|run| {
            let events = run * RUN..count.min((run + 1) * RUN);
            let is_listed = |index: &usize| is_listed(trace, device, wanted, *index);
            (!cancel.is_cancelled()).then(|| events.filter(is_listed).map(|index| index as u32).collect())
        })
        .collect();
    let runs = runs?;
    let listed = runs.iter().map(Vec::len).sum::<usize>();
    if listed == count {
        return Some(Arc::new(Listed::All(count)));
    }
    let mut events = Vec::with_capacity(listed);
    runs.iter().for_each(|run| events.extend_from_slice(run));
    Some(Arc::new(Listed::Some(events)))
}

fn is_listed(trace: &Trace, device: DeviceId, wanted: &Wanted, index: usize) -> bool {
    let kind = trace.events.kind[index];
    if !wanted.kinds.contains(Group::of(kind))
        || trace.events.device[index] != device && !trace.is_everywhere(EventId(index as u32))
    {
        return false;
    }
    let matches = &wanted.matches;
    let subject = trace.events.subject[index];
    match kind {
        _ if matches.is_all() => true,
        EventKind::Alloc | EventKind::FreeRequested | EventKind::FreeCompleted | EventKind::Used => {
            matches.contains(BlockId(subject))
        }
        EventKind::Tag => trace.tags.get(subject as usize).is_some_and(|(block, _)| matches.contains(*block)),
        _ => true,
    }
}
