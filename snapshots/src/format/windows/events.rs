//! Reads ranges of events section by section. The next sections are decoded while the caller processes earlier ones.

use std::ops::{ControlFlow, Range};

use crate::error::{Error, Result};
use crate::event::Event;
use crate::format::events_decode::decode_events;
use crate::format::kind::SectionKind;
use crate::format::parallel;
use crate::format::section::Unpacker;
use crate::format::windows::sections::Sections;

/// Maximum number of events decoded at a time, so that little work is wasted if the reader stops early.
const BATCH_EVENTS: u64 = 1 << 18;

/// The event sections of a file, without gaps.
#[derive(Debug)]
pub(super) struct EventSections {
    rows: Vec<EventSection>,
    pub(super) count: u64,
}

#[derive(Clone, Copy, Debug)]
struct EventSection {
    /// Number of events before the section.
    first: u64,
    /// Number of events up to the end of the section.
    end: u64,
    offset: u64,
}

/// Callback with a run of events and the index of the first event.
pub(super) type TakeRun<'a> = dyn FnMut(u64, &[Event]) -> ControlFlow<()> + Send + 'a;

/// Callback that modifies decoded events. Receives consecutive events and the index of the first.
pub(super) type Rename<'a> = dyn Fn(u64, &mut [Event]) + Sync + 'a;

impl EventSections {
    pub(super) fn find(sections: &Sections) -> Result<Self> {
        let places: Vec<(u64, u64)> =
            sections.of_kind(SectionKind::Events).map(|row| (row.events_before, row.offset)).collect();
        let Some(&(last, offset)) = places.last() else { return Ok(Self { rows: Vec::new(), count: 0 }) };
        let damaged = |what: &str| Error::Damaged { offset, what: what.to_owned() };
        if places[0].0 != 0 {
            return Err(damaged("the first events are missing"));
        }
        let count = last.checked_add(u64::from(sections.header(offset)?.count));
        let count = count.ok_or_else(|| damaged("it declares more events than can be counted"))?;
        let ends = places.iter().skip(1).map(|(first, _)| *first).chain([count]);
        let rows = places.iter().zip(ends).map(|(&(first, offset), end)| EventSection { first, end, offset });
        Ok(Self { rows: rows.collect(), count })
    }

    /// Passes the events of `range` to `take`, in order and modified by `rename`, until `take` breaks.
    pub(super) fn read(
        &self,
        sections: &Sections,
        range: Range<u64>,
        rename: &Rename<'_>,
        take: &mut TakeRun<'_>,
    ) -> Result<()> {
        let range = range.start..range.end.min(self.count);
        if range.is_empty() {
            return Ok(());
        }
        let first = self.rows.partition_point(|row| row.end <= range.start);
        let end = self.rows.partition_point(|row| row.first < range.end);
        let mut left = &self.rows[first..end];
        let mut ready: Vec<(u64, Result<Vec<Event>>)> = Vec::new();
        let mut most = 1;
        loop {
            let (batch, rest) = left.split_at(batch_of(left, most));
            most = (4 * most).clamp(1 << 14, BATCH_EVENTS);
            left = rest;
            let is_last = batch.is_empty();
            let now = std::mem::take(&mut ready);
            let (taken, next) = parallel::join(|| pass(now, &range, take), || decode(sections, batch, rename));
            if taken?.is_break() || is_last {
                return Ok(());
            }
            ready = next;
        }
    }
}

/// Returns the number of sections at the start of `rows` that together have about `events` events; at least one, unless
/// `rows` is empty.
fn batch_of(rows: &[EventSection], events: u64) -> usize {
    let Some(first) = rows.first() else { return 0 };
    rows.partition_point(|row| row.first - first.first < events)
}

/// Calls `take` with the decoded events that are in `range`.
fn pass(ready: Vec<(u64, Result<Vec<Event>>)>, range: &Range<u64>, take: &mut TakeRun<'_>) -> Result<ControlFlow<()>> {
    for (first, events) in ready {
        let events = events?;
        let end = first + events.len() as u64;
        let part = range.start.clamp(first, end)..range.end.clamp(first, end);
        let run = &events[(part.start - first) as usize..(part.end - first) as usize];
        if !run.is_empty() && take(part.start, run).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

fn decode(sections: &Sections, batch: &[EventSection], rename: &Rename<'_>) -> Vec<(u64, Result<Vec<Event>>)> {
    parallel::map(batch, Unpacker::new, |unpacker, row| {
        let mut events = decode_one(sections, unpacker, *row);
        if let Ok(events) = &mut events {
            rename(row.first, events);
        }
        (row.first, events)
    })
}

fn decode_one(sections: &Sections, unpacker: &mut Unpacker, row: EventSection) -> Result<Vec<Event>> {
    let damaged = |what| Error::Damaged { offset: row.offset, what };
    let found = sections.section(row.offset)?;
    let header = found.header;
    let is_whole = header.first == row.first && row.first + u64::from(header.count) == row.end;
    if header.kind() != Some(SectionKind::Events) || !is_whole {
        return Err(damaged("the index lists other events than this section contains".to_owned()));
    }
    let raw = unpacker.unpack(&found.section()).map_err(damaged)?;
    let decoded = decode_events(raw, header.count).map_err(damaged)?;
    if decoded.unknown > 0 {
        return Err(damaged(format!("{} events are of unknown kinds", decoded.unknown)));
    }
    Ok(decoded.events)
}
