//! The files of a recording: a single file, or the consecutive files of a rotation, each with its own tables.
//!
//! Every file after the first starts with a starting state, and with events that repeat the current step and phase. The
//! state is already known from the end of the previous file, so that it is only compared; the repeated events are read
//! as marks.

use std::ops::{ControlFlow, Range};
use std::sync::OnceLock;

use hashbrown::HashMap;

use crate::builder::StartingState;
use crate::byte_source::NamedSource;
use crate::error::{Error, Problem, Result};
use crate::event::{BlockKey, Event, What};
use crate::format::checkpoint::Checkpoint;
use crate::format::kind::SectionKind;
use crate::format::summary::{Summarizer, Summary};
use crate::format::windows::events::{EventSections, TakeRun};
use crate::format::windows::file_facts::read_file_facts;
use crate::format::windows::sections::Sections;
use crate::format::windows::shapes::ShapeRows;
use crate::ids::{DeviceId, StringId};
use crate::merge::{MergedRows, MergedTables};
use crate::rotation::PART;
use crate::stage::{Outside, Stage};
use crate::tables::Op;
use crate::trace::{Header, Trace, TraceParts};

/// Maximum number of events at the start of a file that repeat the step and the phase.
const MAX_REPEATED: u32 = 2;

#[derive(Debug)]
pub(super) struct Files {
    parts: Vec<FilePart>,
    pub(super) count: u64,
}

#[derive(Debug)]
pub(super) struct FilePart {
    pub(super) sections: Sections,
    pub(super) events: EventSections,
    /// Number of events in all earlier files.
    pub(super) first: u64,
    /// Number of operations in all earlier files.
    pub(super) first_op: u64,
    /// The shapes of the file's blocks, by event index within the file.
    pub(super) shapes: ShapeRows,
    /// Additional facts about a file after the first; `None` for the first or only file.
    later: Option<Later>,
    /// The merged rows of the file's tables; `None` if it is the only file.
    rows: Option<MergedRows>,
}

#[derive(Debug)]
struct Later {
    repeated: Vec<Event>,
    /// The text of the mark that replaces the repeated events.
    begins: StringId,
    /// The live blocks of each device according to the file.
    live: Vec<LiveCount>,
    boundary: OnceLock<Boundary>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Boundary {
    pub(super) stage: Stage,
    /// The allocation of each live block that was allocated within the recording.
    pub(super) births: HashMap<(DeviceId, BlockKey), Outside>,
    /// The last sample of the memory in use on each device; devices without samples are omitted.
    pub(super) device_used: HashMap<DeviceId, u64>,
    pub(super) live: Vec<LiveCount>,
}

/// A device, with the number and the requested bytes of its blocks that are live or awaiting free.
pub(super) type LiveCount = (DeviceId, u64, u64);

pub(super) fn live_of(state: &StartingState) -> LiveCount {
    let bytes = state.blocks.iter().map(|block| block.alloc.requested).fold(0, u64::saturating_add);
    (state.device, state.blocks.len() as u64, bytes)
}

impl Files {
    /// Opens the files of a recording, each with its name. Also returns everything except events and operations, and
    /// the starting states.
    ///
    /// # Errors
    /// Fails if a file cannot be read, is damaged, or does not belong to the same recording as the previous one.
    pub(super) fn open(sources: Vec<NamedSource>) -> Result<(Self, Trace, Vec<StartingState>)> {
        let is_one = sources.len() == 1;
        let mut files = Self { parts: Vec::new(), count: 0 };
        let (mut tables, mut merged): (MergedTables, Option<TraceParts>) = (MergedTables::default(), None);
        let (mut starting, mut next_op) = (Vec::new(), 0);
        for (name, source) in sources {
            let named = |why: Error| if is_one { why } else { why.named(&name) };
            let sections = Sections::locate(source).map_err(named)?;
            let events = EventSections::find(&sections).map_err(named)?;
            let (base, states, shapes) = read_file_facts(&sections, events.count).map_err(named)?;
            let operations = operations(&sections).map_err(named)?;
            let (first, first_op) = (files.count, next_op);
            let mut part = FilePart { sections, events, first, first_op, shapes, later: None, rows: None };
            if is_one {
                files.count = part.events.count;
                files.parts.push(part);
                return Ok((files, base, states));
            }
            let damaged = |what: &str| Error::Damaged { offset: 0, what: format!("{name}: {what}") };
            let mut rows = tables.take(&base.tables);
            let first_op = u32::try_from(next_op).map_err(|_| damaged("too many operations before it"))?;
            rows.set_operations(first_op, operations as usize);
            let began = |header: &Header| (header.started_unix_us, header.pid, header.host.clone());
            match &mut merged {
                None => {
                    starting = states;
                    starting.iter_mut().for_each(|state| rows.rename_state(state));
                    merged = Some(base.0);
                }
                Some(all) if began(&all.header) == began(&base.header) => {
                    let begins = tables.string(&format!("{name} begins"));
                    let repeated = repeated(&part).map_err(named)?;
                    let live = states.iter().map(live_of).collect();
                    part.later = Some(Later { repeated, begins, live, boundary: OnceLock::new() });
                    add_base(all, base.0, &name);
                }
                Some(_) => return Err(damaged("it belongs to another recording")),
            }
            let counted = files.count.checked_add(part.events.count).zip(next_op.checked_add(operations));
            (files.count, next_op) = counted.ok_or_else(|| damaged("it declares more events than can be counted"))?;
            part.shapes.iter_mut().for_each(|(_, value)| *value = rows.string(*value));
            part.rows = Some(rows);
            files.parts.push(part);
        }
        let mut base = merged.unwrap_or_default();
        base.tables = tables.into_tables();
        Ok((files, base.finish(), starting))
    }

    pub(super) fn parts(&self) -> &[FilePart] {
        &self.parts
    }

    /// Adds the events from those already in `summarizer` up to event `end`, which is excluded.
    pub(super) fn summarize(&self, summarizer: &mut Summarizer, end: u64) -> Result<()> {
        let start = summarizer.events();
        let mut take = |_: u64, run: &[Event]| {
            summarizer.take(run);
            ControlFlow::Continue(())
        };
        self.read(start..end, &mut take)
    }

    /// The total length of all files in bytes.
    pub(super) fn length(&self) -> u64 {
        self.parts.iter().map(|part| part.sections.length).sum()
    }

    /// Passes the events of `range` to `take`, in order, until `take` breaks.
    pub(super) fn read(&self, range: Range<u64>, take: &mut TakeRun<'_>) -> Result<()> {
        let is_touched = |part: &&FilePart| part.first < range.end && part.first + part.events.count > range.start;
        for part in self.parts.iter().filter(is_touched) {
            let local = range.start.saturating_sub(part.first)..range.end - part.first;
            let mut is_done = false;
            let mut take_next = |first: u64, run: &[Event]| {
                let flow = take(part.first + first, run);
                is_done |= flow.is_break();
                flow
            };
            part.events.read(&part.sections, local, &|first, run| part.rename(first, run), &mut take_next)?;
            if is_done {
                break;
            }
        }
        Ok(())
    }
}

impl FilePart {
    /// Returns whether this is not the first file, so that the state at its start is known from the previous one.
    pub(super) fn is_later(&self) -> bool {
        self.later.is_some()
    }

    /// The state at the end of the previous file, computed by `compute` on first use; `None` for the first file.
    pub(super) fn boundary(&self, compute: impl FnOnce() -> Result<Boundary>) -> Result<Option<&Boundary>> {
        let Some(later) = &self.later else { return Ok(None) };
        if later.boundary.get().is_none() {
            let found = compute()?;
            later.boundary.get_or_init(|| found);
        }
        Ok(later.boundary.get())
    }

    /// Whether the number and the requested bytes of each device's live blocks are the same at the start of the file as
    /// at the end of the previous file.
    pub(super) fn continues(&self, boundary: &Boundary) -> bool {
        let some = |counts: &[LiveCount]| {
            let mut counts: Vec<LiveCount> = counts.iter().copied().filter(|(_, blocks, _)| *blocks > 0).collect();
            counts.sort_unstable();
            counts
        };
        self.later.as_ref().is_none_or(|later| some(&later.live) == some(&boundary.live))
    }

    /// Converts row numbers in events to those of the merged tables, and replaces repeated step and phase events.
    fn rename(&self, first: u64, run: &mut [Event]) {
        if let Some(rows) = &self.rows {
            run.iter_mut().for_each(|event| rows.rename(event));
        }
        let Some(later) = &self.later else { return };
        let repeated = (later.repeated.len() as u64).saturating_sub(first) as usize;
        for event in run.iter_mut().take(repeated) {
            event.what = What::Mark(later.begins);
        }
    }

    /// Converts the row numbers of an operation to those of the merged tables.
    pub(super) fn rename_op(&self, op: Op) -> Op {
        let Some(rows) = &self.rows else { return op };
        Op { name: rows.string(op.name), scope: rows.scope(op.scope), stack: rows.stack(op.stack) }
    }

    /// Converts the event index of a stage to that in the whole recording. A stage that began before this file is taken
    /// from the boundary.
    fn renumber_stage(&self, stage: Stage, boundary: Option<&Boundary>) -> Stage {
        let repeated = self.later.as_ref().map_or(0, |later| later.repeated.len() as u64);
        let before = boundary.map(|boundary| boundary.stage);
        let is_older = |before: &Stage| {
            (before.step, before.phase) == (stage.step, stage.phase) && stage.since <= repeated.saturating_sub(1)
        };
        before.filter(is_older).unwrap_or(Stage { since: stage.since.saturating_add(self.first), ..stage })
    }

    fn renumber(&self, at: Outside, boundary: Option<&Boundary>) -> Outside {
        Outside { event: at.event.saturating_add(self.first), stage: self.renumber_stage(at.stage, boundary), ..at }
    }

    pub(super) fn renumber_summary(&self, row: &mut Summary, boundary: Option<&Boundary>) {
        row.stage = self.renumber_stage(row.stage, boundary);
        row.first = row.first.saturating_add(self.first);
    }

    /// Converts a checkpoint's event indices to those of the recording, and row numbers to those of merged tables.
    pub(super) fn renumber_checkpoint(&self, part: &mut Checkpoint, boundary: Option<&Boundary>) {
        part.events = part.events.saturating_add(self.first);
        part.stage = self.renumber_stage(part.stage, boundary);
        let device = part.state.device;
        for (birth, block) in part.births.iter_mut().zip(&part.state.blocks) {
            let known = || boundary.and_then(|boundary| boundary.births.get(&(device, block.alloc.block)).copied());
            *birth = birth.map(|at| self.renumber(at, boundary)).or_else(known);
        }
        if part.totals.device_used == 0 {
            // Not sampled since this file began.
            part.totals.device_used = boundary.and_then(|at| at.device_used.get(&device)).copied().unwrap_or(0);
        }
        part.deaths.iter_mut().for_each(|death| death.at = self.renumber(death.at, boundary));
        if let Some(rows) = &self.rows {
            rows.rename_state(&mut part.state);
        }
    }
}

fn operations(sections: &Sections) -> Result<u64> {
    let last = sections.of_kind(SectionKind::Ops).last();
    let header = last.map(|row| sections.header(row.offset)).transpose()?;
    Ok(header.map_or(0, |header| header.first.saturating_add(u64::from(header.count))))
}

/// The events at the start of a file that repeat the step and the phase, which are a separate section.
fn repeated(part: &FilePart) -> Result<Vec<Event>> {
    let Some(first) = part.sections.of_kind(SectionKind::Events).next() else { return Ok(Vec::new()) };
    let count = part.sections.header(first.offset)?.count;
    let mut found = Vec::new();
    if count > MAX_REPEATED {
        return Ok(found);
    }
    let mut take = |_: u64, run: &[Event]| {
        found.extend_from_slice(run);
        ControlFlow::Continue(())
    };
    part.events.read(&part.sections, 0..u64::from(count), &|_, _| (), &mut take)?;
    let is_repeated = |event: &Event| matches!(event.what, What::Step(_) | What::Phase(_));
    Ok(if found.iter().all(is_repeated) { found } else { Vec::new() })
}

/// Adds the devices, facts, sources, losses and problems of another file.
fn add_base(all: &mut TraceParts, base: TraceParts, name: &str) {
    let known = &mut all.header.facts;
    for fact in base.header.facts.into_iter().filter(|(name, _)| name != PART) {
        if !known.contains(&fact) {
            known.push(fact);
        }
    }
    all.merge_sources(&base.sources);
    for facts in base.devices {
        if all.devices.iter().all(|known| known.device != facts.device) {
            all.devices.push(facts);
        }
    }
    let trust = &mut all.trust;
    trust.events_lost = trust.events_lost.saturating_add(base.trust.events_lost);
    trust.sizes_inferred = trust.sizes_inferred.saturating_add(base.trust.sizes_inferred);
    trust.unfinished |= base.trust.unfinished;
    all.problems.extend(
        base.problems.into_iter().map(|problem| Problem { what: format!("{name}: {}", problem.what), ..problem }),
    );
}
