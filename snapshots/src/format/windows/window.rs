//! Builds the trace of a window of events.

use std::ops::{ControlFlow, Range};

use hashbrown::HashMap;

use super::Windows;
use crate::builder::{StartingState, TraceBuilder};
use crate::error::Result;
use crate::event::{BlockKey, Event, What};
use crate::format::summary::Summarizer;
use crate::ids::{BlockId, DeviceId};
use crate::stage::{Outside, Stage};
use crate::trace::{DeviceStart, Start, Trace};

/// Blocks that are live at the end of a window, by device and key.
type Open = HashMap<(DeviceId, BlockKey), BlockId>;

impl Windows {
    /// Reads the events of `events`, and everything about them: what was live before, and when the blocks that are live
    /// at the end are freed. Costs the events of the window, and those since the last checkpoint before it.
    ///
    /// Differs from the same events of the whole recording in two respects: last uses are those of the window, and a
    /// category that a block gets after its free was requested is unknown before.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, or is damaged where this reads it.
    pub fn window(&self, events: Range<u64>) -> Result<Trace> {
        let range = events.start.min(self.events.count)..events.end.min(self.events.count);
        let mut summarizer = self.at_checkpoint(range.start)?;
        let mut window = Window::default();
        let from = summarizer.events();
        let mut take = |first: u64, run: &[Event]| {
            let before = (range.start.saturating_sub(first) as usize).min(run.len());
            let (before, run) = run.split_at(before);
            before.iter().for_each(|event| summarizer.take(event));
            if !run.is_empty() {
                window.begin(self, &summarizer, &range);
                run.iter().for_each(|event| window.push(event));
            }
            ControlFlow::Continue(())
        };
        self.events.read(&self.sections, from..range.end.max(range.start), &mut take)?;
        window.begin(self, &summarizer, &range);
        let mut trace = window.builder.unwrap_or_default().finish();
        trace.main_device = self.main_device;
        trace.trust = self.base.trust.clone();
        self.ops.localize(&self.sections, &mut trace)?;
        self.look_ahead(&mut trace, &window.keys, range.end)?;
        Ok(trace)
    }

    /// Restores the last checkpoint at or before event `number`, or begins with the recording.
    fn at_checkpoint(&self, number: u64) -> Result<Summarizer> {
        match self.checkpoints.before(number) {
            Some(checkpoint) => self.checkpoints.restore(&self.sections, checkpoint),
            None => {
                let mut summarizer = Summarizer::default();
                self.starting.iter().for_each(|state| summarizer.begin(state));
                Ok(summarizer)
            }
        }
    }

    /// Finds out what happens to the blocks that are live after event `end`: their last categories, and their frees.
    fn look_ahead(&self, trace: &mut Trace, keys: &[BlockKey], end: u64) -> Result<()> {
        let mut open = Open::new();
        for id in trace.blocks.ids() {
            let row = id.0 as usize;
            if !trace.blocks.free_requested[row].is_some() {
                open.insert((trace.blocks.device[row], keys[row]), id);
            }
        }
        let number_of = |trace: &Trace, id: BlockId| {
            let block = trace.blocks.get(id);
            let alloc = block.alloc.index().map(|row| trace.start.events + row as u64);
            alloc.or(block.birth.map(|birth| birth.event))
        };
        // Most live to the end.
        for (device, live) in &self.end {
            for block in live.blocks() {
                let key = (*device, block.block.alloc.block);
                let Some(&id) = open.get(&key) else { continue };
                if number_of(trace, id) == block.birth.map(|birth| birth.event) && !block.block.free_requested {
                    trace.blocks.category[id.0 as usize] = block.block.alloc.category;
                    open.remove(&key);
                }
            }
        }
        let mut deaths: Vec<(BlockId, Outside)> = Vec::new();
        let next = self.checkpoints.before(end).map_or(0, |number| number + 1);
        let scanned = self.checkpoints.events(next).unwrap_or(self.events.count);
        let mut stage = trace.stage_at_end();
        if !open.is_empty() {
            let mut take = |first: u64, run: &[Event]| {
                for (event, number) in run.iter().zip(first..) {
                    stage = stage.after(&event.what, number);
                    let (key, is_death) = match event.what {
                        What::FreeRequested(key) | What::FreeCompleted(key) => (key, true),
                        What::Alloc(alloc) => (alloc.block, true),
                        What::Tag(key, category) => {
                            if let Some(id) = open.get(&(event.device, key)) {
                                trace.blocks.category[id.0 as usize] = category;
                            }
                            continue;
                        }
                        _ => continue,
                    };
                    if is_death && let Some(id) = open.remove(&(event.device, key)) {
                        deaths.push((id, Outside { event: number, time_ns: event.time_ns, stage }));
                    }
                }
                if open.is_empty() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            self.events.read(&self.sections, end..scanned, &mut take)?;
        }
        // A checkpoint names the blocks of the one before it that have died since.
        let mut number = next + 1;
        while !open.is_empty() && self.checkpoints.events(number).is_some() {
            for death in self.checkpoints.parts(&self.sections, number)?.iter().flat_map(|part| &part.deaths) {
                if let Some(id) = open.remove(&(death.device, death.block)) {
                    trace.blocks.category[id.0 as usize] = death.category;
                    deaths.push((id, death.at));
                }
            }
            number += 1;
        }
        deaths.sort_unstable_by_key(|(id, _)| *id);
        trace.blocks.deaths = deaths;
        Ok(())
    }
}

/// A trace on its way.
#[derive(Default)]
struct Window {
    builder: Option<TraceBuilder>,
    /// The key of each block, by row.
    keys: Vec<BlockKey>,
}

impl Window {
    /// Begins the trace with what `summarizer` has, once.
    fn begin(&mut self, windows: &Windows, summarizer: &Summarizer, range: &Range<u64>) {
        if self.builder.is_some() {
            return;
        }
        let base = &windows.base;
        let mut builder = TraceBuilder::with_capacity((range.end - range.start) as usize);
        builder.set_header(base.header.clone());
        base.devices.iter().for_each(|facts| builder.set_device(facts.clone()));
        *builder.tables() = base.tables.clone();
        base.problems.iter().for_each(|problem| builder.add_problem(problem.clone()));
        let mut births: Vec<Option<Outside>> = Vec::new();
        let mut devices = Vec::new();
        for (device, live) in summarizer.states() {
            let blocks = live.blocks();
            births.extend(blocks.iter().map(|block| block.birth));
            self.keys.extend(blocks.iter().map(|block| block.block.alloc.block));
            let state = StartingState {
                device,
                segments: live.segments(),
                mappings: live.mappings(),
                blocks: blocks.iter().map(|block| block.block).collect(),
            };
            builder.set_starting_state(&state);
            let totals = live.totals();
            devices.push(DeviceStart { device, device_used: totals.device_used, reserved: totals.reserved });
        }
        for device in windows.device_ids() {
            if devices.iter().all(|start: &DeviceStart| start.device != device) {
                devices.push(DeviceStart { device, ..DeviceStart::default() });
            }
        }
        let has_stages = windows.has_stages();
        let stage = summarizer.stage();
        let all_events = Some(windows.events.count);
        builder.set_start(Start { events: range.start, all_events, stage, has_stages, devices }, births);
        self.builder = Some(builder);
    }

    fn push(&mut self, event: &Event) {
        if let What::Alloc(alloc) = event.what {
            self.keys.push(alloc.block);
        }
        self.builder.as_mut().expect("it has begun").push(event);
    }
}

impl Trace {
    /// Step and phase after the last event.
    fn stage_at_end(&self) -> Stage {
        let last = self.events.len().checked_sub(1).map(crate::ids::EventId::from_index);
        last.and_then(|last| self.stage_at(last)).unwrap_or(self.start.stage)
    }
}
