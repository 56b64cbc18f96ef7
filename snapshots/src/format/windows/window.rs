//! Builds the trace of a window of events.

use std::borrow::Cow;
use std::ops::{ControlFlow, Range};

use hashbrown::HashMap;

use super::Windows;
use crate::builder::TraceBuilder;
use crate::error::Result;
use crate::event::{BlockKey, Event, What};
use crate::format::parallel;
use crate::format::summary::{EndedBlock, Summarizer};
use crate::ids::{BlockId, DeviceId};
use crate::live_state::begin_window;
use crate::stage::{Outside, Stage};
use crate::trace::{Start, Trace};
use crate::transition::{Named, Transition, transition};

/// Maximum number of events for which memory is reserved in advance, since a malicious file may claim any number.
const MAX_ROOM: u64 = 1 << 21;

/// The blocks that are live at the end of a window, by device and block key.
type Open = HashMap<(DeviceId, BlockKey), BlockId>;

impl Windows {
    /// Reads `events` and their context: the state before them, and the frees of the blocks that are live at their end.
    /// The time is proportional to the size of the window, plus the number of events since the last checkpoint before
    /// it.
    ///
    /// Differs from the same events of the whole recording in three respects: last uses are those within the window; a
    /// category that a block gets after its free was requested is unknown before; and for blocks awaiting free at the
    /// start, the time of their requested free is unknown.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or if the part that is read is damaged.
    pub fn window(&self, events: Range<u64>) -> Result<Trace> {
        let start = events.start.min(self.files.count);
        let range = start..events.end.clamp(start, self.files.count);
        let mut summarizer = self.at_checkpoint(range.start);
        let mut window = Window::default();
        let from = summarizer.events();
        let mut take = |first: u64, run: &[Event]| {
            let before = (range.start.saturating_sub(first) as usize).min(run.len());
            let (before, run) = run.split_at(before);
            summarizer.take(before);
            if !run.is_empty() {
                window.begin(self, &summarizer, &range);
                run.iter().for_each(|event| window.push(event));
            }
            ControlFlow::Continue(())
        };
        self.files.read(from..range.end, &mut take)?;
        window.begin(self, &summarizer, &range);
        let mut trace = window.builder.unwrap_or_default().finish();
        trace.0.device_uses.clone_from(&self.device_uses);
        trace.0.has_times |= self.summaries.iter().any(|row| row.times_ns.1 > 0);
        trace.0.trust = self.base.trust.clone();
        self.ops.localize(&self.files, &mut trace)?;
        self.add_shapes(&mut trace, &window.keys);
        self.look_ahead(&mut trace, &window.keys, range.end)?;
        Ok(trace)
    }

    /// Restores the last intact checkpoint at or before event `number`, or the state before the first event.
    pub(super) fn at_checkpoint(&self, number: u64) -> Summarizer {
        let earlier = (0..self.checkpoints.before(number).map_or(0, |last| last + 1)).rev();
        let mut restored =
            earlier.filter_map(|number| self.checkpoints.restore(&self.files, number, || self.at_start()).ok());
        restored.next().unwrap_or_else(|| self.at_start())
    }

    /// Finds the last categories and the frees, after event `end`, of the blocks that are live at that point.
    fn look_ahead(&self, trace: &mut Trace, keys: &[BlockKey], end: u64) -> Result<()> {
        let mut open = Open::new();
        for id in trace.blocks.ids() {
            let row = id.0 as usize;
            if !trace.blocks.free_requested[row].is_some() {
                open.insert((trace.blocks.device[row], keys[row]), id);
            }
        }
        // Most of them are live at the end of the recording.
        for (device, live) in &self.end {
            for block in live.blocks() {
                let key = (*device, block.block.alloc.block);
                let Some(&id) = open.get(&key) else { continue };
                if trace.alloc_number(id) == block.birth.map(|birth| birth.event) && !block.block.free_requested {
                    trace.0.blocks.category[id.0 as usize] = block.block.alloc.category;
                    open.remove(&key);
                }
            }
        }
        let mut deaths: Vec<(BlockId, Outside)> = Vec::new();
        let next = self.checkpoints.before(end).map_or(0, |number| number + 1);
        let scanned = self.checkpoints.events(next).unwrap_or(self.files.count);
        self.scan(trace, &mut open, &mut deaths, end..scanned)?;
        // A checkpoint names the blocks of the one before it that have died since.
        let mut number = next + 1;
        while !open.is_empty() && number < self.checkpoints.count() {
            let known = if number - next > FEW_CHECKPOINTS { self.all_deaths() } else { self.deaths_at(number) };
            let Ok(known) = known else {
                // The events contain the same information.
                self.scan(trace, &mut open, &mut deaths, scanned..self.files.count)?;
                break;
            };
            let is_all = number - next > FEW_CHECKPOINTS;
            open.retain(|&(device, block), id| {
                let first =
                    known.partition_point(|death| (death.device, death.block, death.at.event) < (device, block, end));
                let Some(death) = known.get(first).filter(|death| (death.device, death.block) == (device, block))
                else {
                    return true;
                };
                trace.0.blocks.category[id.0 as usize] = death.category;
                deaths.push((*id, death.at));
                false
            });
            if is_all {
                break;
            }
            number += 1;
        }
        deaths.sort_unstable_by_key(|(id, _)| *id);
        trace.0.blocks.deaths = deaths;
        Ok(())
    }
}

/// Maximum number of checkpoints searched individually for deaths of blocks before those of all are read.
const FEW_CHECKPOINTS: usize = 8;

impl Windows {
    /// Searches the events of `range` for frees and categories of the blocks in `open`.
    fn scan(
        &self,
        trace: &mut Trace,
        open: &mut Open,
        deaths: &mut Vec<(BlockId, Outside)>,
        range: Range<u64>,
    ) -> Result<()> {
        if open.is_empty() {
            return Ok(());
        }
        let mut stage = self.at_checkpoint_stage(trace, range.start);
        let mut take = |first: u64, run: &[Event]| {
            for (event, number) in run.iter().zip(first..) {
                stage = stage.after(&event.what, number);
                let Some(key) = event.what.block().map(|key| (event.device, key)) else { continue };
                let Some(&id) = open.get(&key) else { continue };
                match (transition(event.what.kind(), Named::Live), event.what) {
                    (Transition::Tagged { .. }, What::Tag(_, category)) => {
                        trace.0.blocks.category[id.0 as usize] = category;
                    }
                    (Transition::Used, _) => {}
                    _ => {
                        open.remove(&key);
                        deaths.push((id, Outside { event: number, time_ns: event.time_ns, stage }));
                    }
                }
            }
            if open.is_empty() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        self.files.read(range, &mut take)
    }

    /// Returns the step and phase before the event with index `number`, which is the end of `trace` or a checkpoint.
    fn at_checkpoint_stage(&self, trace: &Trace, number: u64) -> Stage {
        if number == trace.start.events + trace.events.len() as u64 {
            return trace.events.ids().next_back().and_then(|last| trace.stage_at(last)).unwrap_or(trace.start.stage);
        }
        let rows = &self.summaries;
        let before = rows.partition_point(|row| row.first + u64::from(row.events) <= number);
        before.checked_sub(1).map_or_else(Stage::default, |row| rows[row].stage)
    }

    /// The blocks that died according to a checkpoint, by device and key.
    fn deaths_at(&self, number: usize) -> Result<Cow<'_, [EndedBlock]>> {
        let mut deaths: Vec<EndedBlock> = if self.checkpoints.names_no_deaths(&self.files, number) {
            self.deaths_before(number)?
        } else {
            let parts = self.checkpoints.parts(&self.files, number, || self.at_start())?;
            parts.into_iter().flat_map(|part| part.deaths).collect()
        };
        deaths.sort_unstable_by_key(|death| (death.device, death.block, death.at.event));
        Ok(deaths.into())
    }

    /// The blocks that died between the previous checkpoint and this one, computed from the events.
    fn deaths_before(&self, number: usize) -> Result<Vec<EndedBlock>> {
        let mut summarizer = self.checkpoints.restore(&self.files, number - 1, || self.at_start())?;
        self.files.summarize(&mut summarizer, self.checkpoints.events(number).unwrap_or(self.files.count))?;
        Ok(summarizer.end_part().1)
    }

    /// The blocks that died according to all checkpoints, by device and key.
    fn all_deaths(&self) -> Result<Cow<'_, [EndedBlock]>> {
        if let Some(deaths) = self.deaths.get() {
            return Ok(deaths.into());
        }
        let numbers: Vec<usize> = (0..self.checkpoints.count()).collect();
        let read = parallel::map(&numbers, || (), |(), number| self.deaths_at(*number).map(Cow::into_owned));
        let mut all: Vec<EndedBlock> = read.into_iter().collect::<Result<Vec<_>>>()?.concat();
        all.sort_unstable_by_key(|death| (death.device, death.block, death.at.event));
        Ok(self.deaths.get_or_init(|| all).into())
    }
}

#[derive(Default)]
struct Window {
    builder: Option<TraceBuilder>,
    /// The key of each block, by row.
    keys: Vec<BlockKey>,
}

impl Window {
    /// Starts the trace with the state of `summarizer`, unless it has already been started.
    fn begin(&mut self, windows: &Windows, summarizer: &Summarizer, range: &Range<u64>) {
        if self.builder.is_some() {
            return;
        }
        let base = &windows.base;
        let mut builder = TraceBuilder::with_capacity((range.end - range.start).min(MAX_ROOM) as usize);
        builder.set_header(base.header.clone());
        base.devices.iter().for_each(|facts| builder.set_device(facts.clone()));
        *builder.tables() = base.tables.clone();
        builder.merge_sources(&base.sources);
        base.problems.iter().for_each(|problem| builder.add_problem(problem.clone()));
        let stage = summarizer.stage();
        let all_events = Some(windows.files.count);
        let has_stages = windows.has_stages();
        let start = Start { events: range.start, all_events, stage, has_stages, ..Start::default() };
        self.keys = begin_window(&mut builder, summarizer.states(), &windows.device_ids(), start);
        self.builder = Some(builder);
    }

    fn push(&mut self, event: &Event) {
        if let What::Alloc(alloc) = event.what {
            self.keys.push(alloc.block);
        }
        self.builder.as_mut().expect("the window has not begun").push(event);
    }
}
