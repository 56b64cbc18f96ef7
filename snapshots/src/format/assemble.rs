//! Assembles the decoded sections of a file in order into a trace, and records missing and inconsistent data.

use super::kind::{SectionKind, kind_text};
use super::owners::Owners;
use super::part::Part;
use super::section::{FLAG_MUST_UNDERSTAND, HEADER_BYTES, MAX_EXPANSION, SectionHeader};
use super::tables_codec::{EndFacts, FrameRow, Symbols};
use super::walk::WalkItem;
use crate::builder::{StartingState, TraceBuilder};
use crate::error::Problem;
use crate::event::Event;
use crate::ids::{DeviceId, FrameId, ModuleId, OpId, ScopeId, StackId, StringId};
use crate::live_bytes::LiveBytes;
use crate::live_state::{LiveState, begin_window};
use crate::tables::{Frame, Module, Op, Scope, Stack, Tables};
use crate::trace::{DeviceUse, Header, Start, Trace, Trust};
use crate::yielding::yield_if_due;

/// Maximum number of problems listed individually; further ones are only counted.
const MAX_PROBLEMS: u64 = 200;

/// Minimum size of a table row, in decompressed bytes.
const MIN_ROW_BYTES: u64 = 8;

/// A trace under construction.
#[derive(Clone, Debug, Default)]
pub(super) struct Assembler {
    builder: TraceBuilder,
    owners: Owners,
    /// The index, in the file, of the next event.
    next_event: u64,
    events_lost: u64,
    /// Bytes of the file that could not be read, which limit how many rows can be missing.
    bytes_lost: u64,
    /// Number of events and of baseline blocks, segments and mappings; must stay below `u32::MAX`.
    subjects: u64,
    has_header: bool,
    end: Option<Trust>,
    has_tail: bool,
    /// Whether the index was found to be damaged or truncated.
    lacks_index: bool,
    /// Whether a summary, a checkpoint or a step activity was found to be damaged.
    lacks_summary: bool,
    problems: u64,
    /// For each group of consecutive events: the number of events up to its end, and the minimum and maximum of live
    /// bytes in it. `None` if not requested.
    measured: Option<Vec<(u64, LiveBytes)>>,
    /// The events read since the last call of `take_passed`; `None` if events are added to the trace instead.
    passing: Option<Box<Passed>>,
}

/// The starting state and the events that were read, for readers that do not keep events in a trace.
#[derive(Clone, Debug, Default)]
pub struct Passed {
    /// The starting states, in the order of the file; a device may have several.
    pub starting: Vec<StartingState>,
    /// Events, in order.
    pub events: Vec<Event>,
}

/// Maximum number of events per entry of `measured`.
const EVENTS_A_LEVEL: usize = 1 << 13;

impl Assembler {
    pub(super) fn with_capacity(events: usize) -> Self {
        Self { builder: TraceBuilder::with_capacity(events), ..Self::default() }
    }

    /// Creates an assembler that returns the events instead of adding them to the trace.
    pub(super) fn passing() -> Self {
        Self { passing: Some(Box::default()), ..Self::default() }
    }

    /// Returns the events read since the last call, for an assembler created by `passing`.
    pub(super) fn take_passed(&mut self) -> Passed {
        self.passing.as_deref_mut().map(std::mem::take).unwrap_or_default()
    }

    pub(super) fn header(&self) -> &Header {
        self.builder.header()
    }

    /// Creates a recording with the same devices and tables but without events, whose baseline is the state `live` of
    /// each device, as a window that begins at `start`. Of the operations, it has only those of its blocks. The time is
    /// proportional to the number of live blocks and to the size of the tables without operations.
    pub(super) fn window(&mut self, live: &[(DeviceId, &LiveState)], start: Start, uses: &[DeviceUse]) -> Trace {
        let trust = self.trust();
        let ops = std::mem::take(&mut self.builder.tables().ops);
        let mut builder = self.builder.without_events();
        let known: Vec<DeviceId> = uses.iter().map(|one| one.device).collect();
        begin_window(&mut builder, live.iter().copied(), &known, start);
        *builder.trust() = trust;
        let mut trace = builder.finish();
        trace.0.device_uses = uses.to_vec();
        name_operations(&mut trace, &ops);
        self.builder.tables().ops = ops;
        trace
    }

    /// Number of events added to the trace; 0 for an assembler created by `passing`.
    pub(super) fn events(&self) -> usize {
        self.builder.event_count()
    }

    /// Skips the events before index `next`, without counting them as lost.
    pub(super) fn pass_events(&mut self, next: u64) {
        self.next_event = next;
    }

    pub(super) fn measure(&mut self) {
        self.measured = Some(Vec::new());
    }

    /// Returns the measurements since the last call: one per group of consecutive events, with the event number at its
    /// end.
    pub(super) fn take_measured(&mut self) -> Vec<(u64, LiveBytes)> {
        self.measured.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Returns the number of events missing from the file, without events that the recorder lost.
    pub(super) fn missing_events(&self) -> u64 {
        self.events_lost
    }

    pub(super) fn is_finished(&self) -> bool {
        self.end.is_some()
    }

    /// Whether a finished file was read to its last byte.
    pub(super) fn is_whole(&self) -> bool {
        self.end.is_some() && self.has_tail
    }

    /// Adds a problem; beyond [`MAX_PROBLEMS`], only counts it.
    pub(super) fn note(&mut self, problem: Problem) {
        self.problems += 1;
        if self.problems <= MAX_PROBLEMS {
            self.builder.add_problem(problem);
        }
    }

    /// Records that the index at the end of a finished file is damaged or truncated. This is reported once.
    fn note_index(&mut self, offset: u64) {
        if !std::mem::replace(&mut self.lacks_index, true) {
            self.note(Problem::of_index(offset));
        }
    }

    /// Adds the next part of the file. `part` is the decoded content of a section.
    pub(super) fn take(&mut self, found: &WalkItem<'_>, part: Option<Result<Part, String>>) {
        match *found {
            WalkItem::Section(section) => {
                let (offset, header) = (section.offset, section.header);
                let taken = match part {
                    Some(Ok(part)) => self.take_part(offset, &header, part),
                    Some(Err(what)) => Err(what),
                    None => Ok(()),
                };
                if let Err(what) = taken {
                    self.lose(offset, &header, &format!("{what}: it is skipped"));
                }
            }
            WalkItem::Damaged { offset, header } if self.is_index(Some(&header)) => self.note_index(offset),
            WalkItem::Damaged { offset, header } if header.kind().is_some_and(SectionKind::is_repeated) => {
                if !std::mem::replace(&mut self.lacks_summary, true) {
                    self.note(Problem::of_summary(offset));
                }
            }
            WalkItem::Damaged { offset, header } => {
                self.lose(offset, &header, "its content does not match its checksum: it is skipped");
            }
            WalkItem::Stray { offset, .. } if self.is_index(None) => self.note_index(offset),
            WalkItem::Stray { offset, bytes } => {
                self.bytes_lost += bytes;
                self.note(Problem::at(offset, format!("bytes in no readable section: {bytes}")));
            }
            WalkItem::Cut { offset, bytes, header } if self.is_index(header.as_ref()) => {
                self.note_index(offset + bytes);
            }
            WalkItem::Cut { offset, bytes, header } => {
                let what = header.map_or_else(String::new, |header| format!(" of kind {}", header.kind_text()));
                let what = format!("the file ends within a section{what}, after {bytes} of its bytes");
                self.note(Problem { is_cut: true, ..Problem::at(offset + bytes, what) });
            }
            WalkItem::Tail { .. } => self.has_tail = true,
        }
    }

    /// Returns whether an unreadable part belongs to the index, which consists of the footer and the tail after the end
    /// of the recording. `header` is the part's header, if it has one.
    fn is_index(&self, header: Option<&SectionHeader>) -> bool {
        self.end.is_some() && header.is_none_or(|header| header.kind() == Some(SectionKind::Footer))
    }

    fn lose(&mut self, offset: u64, header: &SectionHeader, what: &str) {
        self.note(Problem::at(offset, format!("{} section of {} rows: {what}", header.kind_text(), header.count)));
        self.bytes_lost += HEADER_BYTES as u64 + u64::from(header.stored);
        if header.kind() == Some(SectionKind::Events) && header.first >= self.next_event {
            self.reach_event(header.first);
            self.events_lost = self.events_lost.saturating_add(u64::from(header.count));
            self.next_event = header.first.saturating_add(u64::from(header.count));
        }
    }

    /// Counts the events between the last one read and index `first` as lost.
    fn reach_event(&mut self, first: u64) {
        self.events_lost = self.events_lost.saturating_add(first.saturating_sub(self.next_event));
        self.next_event = self.next_event.max(first);
    }

    fn take_part(&mut self, offset: u64, header: &SectionHeader, part: Part) -> Result<(), String> {
        match part {
            Part::Header(facts) => {
                self.builder.set_header(*facts);
                self.has_header = true;
            }
            Part::Device(facts) => self.builder.set_device(*facts),
            Part::Facts(facts) => self.builder.add_facts(facts),
            Part::Sources(sources) => self.builder.add_sources(sources),
            Part::Strings(rows) => self.append(offset, header, rows, String::new(), |tables| &mut tables.strings)?,
            Part::Modules(rows) => {
                let lost = Module { path: StringId::NONE, build_id: Vec::new(), load_bias: 0 };
                self.append(offset, header, rows, lost, |tables| &mut tables.modules)?;
            }
            Part::Frames(rows) => {
                let lost = frame(&FrameRow { module: ModuleId::NONE, address: 0 });
                self.append(offset, header, rows.iter().map(frame).collect(), lost, |tables| &mut tables.frames)?;
            }
            Part::Symbols(rows) => self.take_symbols(offset, &rows),
            Part::Stacks(rows) => {
                let lost = Stack { parent: StackId::NONE, frame: FrameId::NONE };
                self.append(offset, header, rows, lost, |tables| &mut tables.stacks)?;
            }
            Part::Scopes(rows) => {
                let lost = Scope { parent: ScopeId::NONE, name: StringId::NONE };
                self.append(offset, header, rows, lost, |tables| &mut tables.scopes)?;
            }
            Part::Ops(rows) => {
                let lost = Op { name: StringId::NONE, scope: ScopeId::NONE, stack: StackId::NONE };
                self.append(offset, header, rows, lost, |tables| &mut tables.ops)?;
            }
            Part::StartingState(state) => self.take_starting_state(header, &state)?,
            Part::Events(decoded) => {
                self.take_events(header, &decoded.events)?;
                if decoded.unknown > 0 {
                    let count = decoded.unknown;
                    self.note(Problem::at(offset, format!("skipped events of unknown kinds: {count}")));
                }
            }
            Part::Annotations(_) | Part::Attributes(_) if self.passing.is_some() => {}
            Part::Annotations(rows) => {
                let missing = self.missing_rows(header, self.owners.annotations.rows)?;
                self.owners.annotations.take(offset, header, rows);
                self.note_missing(offset, missing, "annotations before this are lost");
            }
            Part::Attributes(rows) => {
                let missing = self.missing_rows(header, self.owners.attributes.rows)?;
                self.owners.attributes.take(offset, header, rows);
                self.note_missing(offset, missing, "attributes before this are lost");
            }
            Part::End(facts) => self.take_end(header, *facts),
            Part::Repeated => {}
            Part::Unknown if header.flags & FLAG_MUST_UNDERSTAND != 0 => {
                let kind = kind_text(header.kind);
                let what = format!("the file needs a section of {kind}, which only a newer highwater reads");
                self.note(Problem::at(offset, what));
            }
            Part::Unknown => {}
        }
        Ok(())
    }

    /// Appends rows to a table. Rows lost with a damaged section are replaced by `lost`, so that handles stay valid.
    fn append<T: Clone>(
        &mut self,
        offset: u64,
        header: &SectionHeader,
        rows: Vec<T>,
        lost: T,
        table: impl Fn(&mut Tables) -> &mut Vec<T>,
    ) -> Result<(), String> {
        let has = table(self.builder.tables()).len() as u64;
        let missing = self.missing_rows(header, has)?;
        let table = table(self.builder.tables());
        if table.is_empty() {
            *table = vec![lost; missing as usize];
        } else {
            table.resize(table.len() + missing as usize, lost);
        }
        table.extend(rows);
        let what = format!("rows of {} before this are lost: references to them show as unknown", header.kind_text());
        self.note_missing(offset, missing, &what);
        Ok(())
    }

    /// Returns the number of rows missing between the `has` existing rows and the first row of a section, or the reason
    /// that number is impossible.
    fn missing_rows(&self, header: &SectionHeader, has: u64) -> Result<u64, String> {
        let could_hold = self.bytes_lost.saturating_mul(MAX_EXPANSION as u64 / MIN_ROW_BYTES);
        let first = header.first;
        match first.checked_sub(has) {
            None => Err(format!("its first row is number {first}, but {has} rows were already read")),
            Some(missing) if missing > could_hold => {
                Err(format!("its first row is number {first}, but only {has} rows came before"))
            }
            Some(missing) => Ok(missing),
        }
    }

    fn note_missing(&mut self, offset: u64, missing: u64, what: &str) {
        if missing > 0 {
            self.note(Problem::at(offset, format!("{missing} {what}")));
        }
    }

    fn take_symbols(&mut self, offset: u64, rows: &[Symbols]) {
        let tables = self.builder.tables();
        let mut missing = 0_u64;
        for row in rows {
            let first_line = u32::try_from(tables.lines.len());
            let frame = row.frame.index().and_then(|index| tables.frames.get_mut(index));
            let (Some(frame), Ok(first_line)) = (frame, first_line) else {
                missing += 1;
                continue;
            };
            frame.first_line = first_line;
            frame.line_count = row.lines.len() as u32;
            tables.lines.extend_from_slice(&row.lines);
        }
        if missing > 0 {
            self.note(Problem::at(offset, format!("source lines of frames that do not exist: {missing}")));
        }
    }

    fn take_starting_state(&mut self, header: &SectionHeader, state: &StartingState) -> Result<(), String> {
        if self.next_event > 0 {
            return Err("a starting state comes after events".to_owned());
        }
        if let Some(passed) = &mut self.passing {
            passed.starting.push(state.clone());
            return Ok(());
        }
        self.spend(state.segments.len() + state.mappings.len() + state.blocks.len())?;
        let before = self.builder.row_counts();
        self.builder.set_starting_state(state);
        self.owners.took_state(header.first, state, before, &self.builder);
        Ok(())
    }

    fn take_events(&mut self, header: &SectionHeader, events: &[Event]) -> Result<(), String> {
        if header.first < self.next_event {
            let (first, next) = (header.first, self.next_event);
            return Err(format!("its first event has index {first}, expected {next} or higher"));
        }
        if let Some(passed) = &mut self.passing {
            passed.events.extend_from_slice(events);
            self.reach_event(header.first);
            self.next_event = header.first.saturating_add(u64::from(header.count));
            return Ok(());
        }
        self.spend(events.len())?;
        self.reach_event(header.first);
        let row = self.builder.event_count();
        for run in events.chunks(EVENTS_A_LEVEL) {
            yield_if_due();
            run.iter().for_each(|event| self.builder.push(event));
            if let Some(measured) = &mut self.measured {
                measured.push((self.builder.event_count() as u64, self.builder.take_levels()));
            }
        }
        self.next_event = header.first.saturating_add(u64::from(header.count));
        self.owners.took_events(header.first, self.next_event, row, self.builder.event_count());
        Ok(())
    }

    /// Checks that there are enough handles for `more` blocks, segments or events.
    fn spend(&mut self, more: usize) -> Result<(), String> {
        let subjects = self.subjects + more as u64;
        if subjects >= u64::from(u32::MAX) {
            return Err("more than 2^32 events and blocks, the maximum of one recording".to_owned());
        }
        self.subjects = subjects;
        Ok(())
    }

    fn take_end(&mut self, header: &SectionHeader, facts: EndFacts) {
        self.reach_event(header.first);
        facts.problems.into_iter().for_each(|problem| self.builder.add_problem(problem));
        self.end = Some(facts.trust);
    }

    pub(super) fn finish(mut self, bytes: u64, was_cut: bool) -> Trace {
        if !self.has_header {
            self.note(Problem::new("the origin of the recording is lost: the file has no readable header section"));
        }
        if self.end.is_none() && !was_cut {
            self.note(Problem::at(
                bytes,
                "the recording stops here: its program ended without finishing it, or is still running",
            ));
        } else if self.end.is_some() && !self.has_tail && !was_cut {
            self.note_index(bytes);
        }
        let owners = std::mem::take(&mut self.owners);
        let problems = owners.finish(&mut self.builder, self.next_event);
        problems.into_iter().for_each(|problem| self.note(problem));
        if let Some(more) = self.problems.checked_sub(MAX_PROBLEMS).filter(|more| *more > 0) {
            self.builder.add_problem(Problem::new(format!("further problems like these: {more}")));
        }
        *self.builder.trust() = self.trust();
        self.builder.finish()
    }

    /// Returns the limits of accuracy that are recorded in the file, together with those found while reading it.
    fn trust(&self) -> Trust {
        let recorded_end = self.end.clone().unwrap_or_default();
        Trust {
            events_lost: recorded_end.events_lost.saturating_add(self.events_lost),
            unfinished: recorded_end.unfinished || self.end.is_none(),
            ..recorded_end
        }
    }
}

/// Copies the operations of `ops` to which the blocks of a trace refer.
fn name_operations(trace: &mut Trace, ops: &[Op]) {
    let mut ids: Vec<OpId> = trace.blocks.op.iter().copied().filter(|id| id.is_some()).collect();
    ids.sort_unstable();
    ids.dedup();
    ids.retain(|id| (id.0 as usize) < ops.len());
    let find = |id: &mut OpId| *id = ids.binary_search(id).map_or(OpId::NONE, OpId::from_index);
    trace.0.blocks.op.iter_mut().for_each(find);
    trace.0.tables.ops = ids.iter().map(|id| ops[id.0 as usize]).collect();
    trace.0.start.ops = ids;
}

fn frame(row: &FrameRow) -> Frame {
    Frame { module: row.module, address: row.address, first_line: 0, line_count: 0 }
}
