//! Resolves the rows of the trace to which a file's annotations and attributes belong, after the whole file is read.
//!
//! A file refers to events, blocks and segments by their indices in the file. If some were lost to damage, the indices
//! of later rows in the trace differ. Annotations and attributes of lost items are dropped; all others are mapped to
//! the right rows.

use super::section::SectionHeader;
use crate::builder::{StartingState, TraceBuilder};
use crate::error::Problem;
use crate::ids::{BlockId, EventId, SegmentId, StringId};
use crate::trace::{Annotation, Attribute, Owner};

#[derive(Clone, Debug, Default)]
pub(super) struct Owners {
    /// The event sections that were read; adjacent ones are merged.
    runs: Vec<Run>,
    /// One more than the index, in the file, of the last starting state read.
    states: u64,
    /// Number of baseline blocks and segments whose rows equal their indices in the file.
    blocks: usize,
    segments: usize,
    /// Whether a starting state was lost, so that rows of later blocks and segments differ from their indices in the
    /// file.
    lost_state: bool,
    pub(super) annotations: Kept<Annotation>,
    pub(super) attributes: Kept<Attribute>,
}

/// A run of events that are consecutive both in the file and in the trace.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// The index, in the file, of the first event.
    first: u64,
    /// One past the index, in the file, of the last event.
    end: u64,
    /// The row, in the trace, of the first event.
    row: usize,
    /// Whether every event of the run has a row. If not, it is unknown which events do.
    is_whole: bool,
}

/// The rows read from sections of one kind, each section with its offset in the file.
#[derive(Clone, Debug)]
pub(super) struct Kept<T> {
    sections: Vec<(u64, Vec<T>)>,
    /// Number of rows of this kind in the file so far.
    pub(super) rows: u64,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self { sections: Vec::new(), rows: 0 }
    }
}

impl<T> Kept<T> {
    pub(super) fn take(&mut self, offset: u64, header: &SectionHeader, rows: Vec<T>) {
        self.rows = header.first.saturating_add(u64::from(header.count));
        self.sections.push((offset, rows));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// The row refers to another row that does not exist in the file.
    NotThere,
    /// The row belongs to an event or a row that was lost.
    Lost,
}

impl Owners {
    /// Records that `state`, whose index in the file is `number`, was added as the rows from `before` on.
    pub(super) fn took_state(
        &mut self,
        number: u64,
        state: &StartingState,
        before: (usize, usize),
        builder: &TraceBuilder,
    ) {
        let (blocks, segments) = builder.row_counts();
        let made = (blocks - before.0, segments - before.1);
        let expected = (state.blocks.len(), state.segments.len() + state.mappings.len());
        self.lost_state |= number != self.states || made != expected;
        if !self.lost_state {
            (self.blocks, self.segments) = (blocks, segments);
        }
        self.states = number.saturating_add(1);
    }

    /// Records that the events `first..end` in the file became the rows `row..end_row`.
    pub(super) fn took_events(&mut self, first: u64, end: u64, row: usize, end_row: usize) {
        let is_whole = end - first == (end_row - row) as u64;
        match self.runs.last_mut() {
            Some(last) if last.is_whole && is_whole && last.end == first => last.end = end,
            _ => self.runs.push(Run { first, end, row, is_whole }),
        }
    }

    /// Adds all rows to `builder` except those that refer to missing rows; `events` is the number of events in the
    /// file, including lost ones. Returns the problems.
    pub(super) fn finish(self, builder: &mut TraceBuilder, events: u64) -> Vec<Problem> {
        let rows = Rows { owners: &self, strings: builder.tables().strings.len(), events, rows: builder.event_count() };
        let (mut annotations, mut attributes, mut problems) = (Vec::new(), Vec::new(), Vec::new());
        for (offset, section) in &self.annotations.sections {
            let found = section.iter().map(|annotation| rows.annotation(annotation));
            annotations.extend(found_rows(found, "annotation", *offset, &mut problems));
        }
        for (offset, section) in &self.attributes.sections {
            let found = section.iter().map(|attribute| rows.attribute(attribute));
            attributes.extend(found_rows(found, "attribute", *offset, &mut problems));
        }
        annotations.into_iter().for_each(|annotation| builder.add_annotation(annotation));
        attributes.into_iter().for_each(|attribute| builder.add_attribute(attribute));
        problems
    }
}

/// Returns the resolved rows. Adds a problem with the number of the others for each reason.
fn found_rows<T>(
    rows: impl Iterator<Item = Result<T, Why>>,
    name: &str,
    offset: u64,
    problems: &mut Vec<Problem>,
) -> Vec<T> {
    let (mut missing, mut lost) = (0_u64, 0_u64);
    let mut count = |why| match why {
        Why::NotThere => missing += 1,
        Why::Lost => lost += 1,
    };
    let found = rows.filter_map(|row| row.map_err(&mut count).ok()).collect();
    let left_out = |count: u64, [one, several]: [&str; 2], what: &str| match count {
        0 => None,
        1 => Some(format!("1 {name} {one} {what}: it is skipped")),
        _ => Some(format!("{count} {name}s {several} {what}: they are skipped")),
    };
    let missing = left_out(missing, ["refers", "refer"], "to missing rows");
    let lost = left_out(lost, ["belongs", "belong"], "to lost rows");
    problems.extend(missing.into_iter().chain(lost).map(|what| Problem::at(offset, what)));
    found
}

struct Rows<'a> {
    owners: &'a Owners,
    strings: usize,
    /// Number of events in the file, including lost ones.
    events: u64,
    /// Number of events in the trace.
    rows: usize,
}

impl Rows<'_> {
    fn annotation(&self, annotation: &Annotation) -> Result<Annotation, Why> {
        let (first, end) = (annotation.first.0, annotation.end.0);
        if first > end {
            return Err(Why::NotThere);
        }
        let name = self.string(annotation.name)?;
        let rows = (self.bound(first)?, self.bound(end)?);
        if first < end && rows.0 == rows.1 {
            return Err(Why::Lost);
        }
        let (first, end) = (EventId::from_index(rows.0), EventId::from_index(rows.1));
        Ok(Annotation { name, first, end, ..*annotation })
    }

    fn attribute(&self, attribute: &Attribute) -> Result<Attribute, Why> {
        let owner = match attribute.owner {
            Owner::Event(id) => Owner::Event(self.event(id)?),
            Owner::Block(BlockId(number)) => {
                self.baseline(number, self.owners.blocks)?;
                attribute.owner
            }
            Owner::Segment(SegmentId(number)) => {
                self.baseline(number, self.owners.segments)?;
                attribute.owner
            }
        };
        let (name, value) = (self.string(attribute.name)?, self.string(attribute.value)?);
        Ok(Attribute { owner, name, value })
    }

    fn string(&self, id: StringId) -> Result<StringId, Why> {
        id.index().filter(|row| *row < self.strings).map(|_| id).ok_or(Why::NotThere)
    }

    /// Checks that item `number` of the baseline is row `number` too, which is certain for the first `sure` rows.
    fn baseline(&self, number: u32, sure: usize) -> Result<(), Why> {
        match (number as usize) < sure {
            true => Ok(()),
            false if self.owners.lost_state => Err(Why::Lost),
            false => Err(Why::NotThere),
        }
    }

    fn event(&self, id: EventId) -> Result<EventId, Why> {
        let number = u64::from(id.0);
        if number >= self.events {
            return Err(Why::NotThere);
        }
        let run = self.run_after(number).filter(|run| run.first <= number && run.is_whole).ok_or(Why::Lost)?;
        Ok(EventId::from_index(run.row + (number - run.first) as usize))
    }

    /// Returns the row of event `number`. If the event was lost, returns the row of the next event that was read, or
    /// one past the last row if there is none.
    fn bound(&self, number: u32) -> Result<usize, Why> {
        let number = u64::from(number);
        match self.run_after(number) {
            _ if number > self.events => Err(Why::NotThere),
            None => Ok(self.rows),
            Some(run) if number <= run.first => Ok(run.row),
            Some(run) if run.is_whole => Ok(run.row + (number - run.first) as usize),
            Some(_) => Err(Why::Lost),
        }
    }

    /// Returns the run that contains event `number`, or the next run if none contains it.
    fn run_after(&self, number: u64) -> Option<&Run> {
        let runs = &self.owners.runs;
        runs.get(runs.partition_point(|run| run.end <= number))
    }
}
