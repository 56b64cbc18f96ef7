//! Reads parts of a recording: any window of its events, in memory in proportion to the window. What was live before
//! the window comes from the last checkpoint before it, and what happens to its blocks later from those after it.
//!
//! A file without checkpoints, or whose checkpoints are damaged, is read once from start to end to compute them.

mod sections;
mod events;
mod file_facts;
mod files;
mod ops;
mod checkpoints;
mod window;
mod numbers;
mod copy;
#[cfg(not(target_family = "wasm"))]
mod rotated;

use std::ops::{ControlFlow, Range};
use std::sync::{Arc, OnceLock};

use crate::builder::StartingState;
use crate::byte_source::{ByteSource, NamedSource};
use crate::error::{Error, Result};
use crate::event::{Event, EventKind};
use crate::format::kind::SectionKind;
use crate::format::parallel;
use crate::format::reader::Progress;
use crate::format::section::{Packer, Unpacker};
use crate::format::summary::{Death, Summarizer, Summary};
use crate::format::tables_codec::rows_from_bytes;
use crate::format::writer::{CHECKPOINT_EVENTS, LEAST_BYTES_A_BLOCK};
use crate::ids::{DeviceId, ScopeId};
use crate::live_state::LiveState;
use crate::metric::Metric;
use crate::trace::{Start, Trace, Trust};

use checkpoints::Checkpoints;
use events::EventSections;
use files::{Boundary, Files};
use ops::OpSections;
use sections::Sections;

/// A recording that is read in parts.
#[derive(Debug)]
pub struct Windows {
    files: Files,
    ops: OpSections,
    /// Everything but events, blocks, segments and operations.
    base: Trace,
    starting: Vec<StartingState>,
    summaries: Vec<Summary>,
    checkpoints: Checkpoints,
    /// The deaths that all checkpoints name, by device and key, in order; read when many are needed.
    deaths: OnceLock<Vec<Death>>,
    /// What is live after the last event.
    end: Vec<(DeviceId, LiveState)>,
    main_device: DeviceId,
}

/// Watches a long pass over the file, and can stop it.
type Watch<'a> = &'a mut (dyn FnMut(Progress) -> ControlFlow<()> + Send);

impl Windows {
    /// Opens a recording; `watch` is called from time to time while all of it is read, which is done if it has no
    /// checkpoints.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be read, is no recording, is damaged, or has annotations or attributes, which only
    /// [`read_bytes`](super::read_bytes) reads; or with [`Error::Cancelled`] if `watch` breaks.
    pub fn open(source: Arc<dyn ByteSource>, watch: Watch<'_>) -> Result<Self> {
        Self::open_files(vec![(String::new(), source)], watch)
    }

    /// Opens the files of a rotation as one recording, in their order and each with its name. All but the first begin
    /// where the one before ends.
    ///
    /// # Errors
    ///
    /// As [`Self::open`], and if they are not of one recording.
    pub fn open_files(sources: Vec<NamedSource>, watch: Watch<'_>) -> Result<Self> {
        let (files, base, starting) = Files::open(sources)?;
        let mut windows = Self {
            summaries: Vec::new(),
            checkpoints: Checkpoints::default(),
            deaths: OnceLock::new(),
            end: Vec::new(),
            main_device: DeviceId::default(),
            ops: OpSections::default(),
            files,
            base,
            starting,
        };
        windows.take_summaries();
        windows.summarize_rest(watch)?;
        windows.main_device = windows.find_main_device();
        Ok(windows)
    }

    /// Reads all of the recording.
    ///
    /// # Errors
    ///
    /// As [`Self::window`].
    pub fn whole(&self) -> Result<Trace> {
        let mut trace = self.window(0..self.files.count)?;
        trace.start = Start { ops: trace.start.ops, ..Start::default() };
        Ok(trace)
    }

    /// Opens a recording as [`Self::open`] does if it has more than `most` events; `None` if it has not.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn open_longer(source: Arc<dyn ByteSource>, most: u64, watch: Watch<'_>) -> Result<Option<Self>> {
        let sections = Sections::locate(Arc::clone(&source))?;
        if EventSections::find(&sections)?.count > most { Self::open(source, watch).map(Some) } else { Ok(None) }
    }

    /// The number of events of a recording; `None` if it is unknown without reading all of it.
    pub fn count_events(source: Arc<dyn ByteSource>) -> Option<u64> {
        let sections = Sections::locate(source).ok()?;
        EventSections::find(&sections).ok().map(|events| events.count)
    }

    /// Calls `take` with the events of `range` in order, in runs, each with the number of its first, until it breaks.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, or is damaged where this reads it.
    pub fn read(
        &self,
        range: Range<u64>,
        take: &mut (dyn FnMut(u64, &[Event]) -> ControlFlow<()> + Send),
    ) -> Result<()> {
        self.files.read(range, take)
    }

    /// The number of events in the recording.
    pub fn events(&self) -> u64 {
        self.files.count
    }

    /// Everything but events, blocks, segments and operations: the header, devices, tables, trust and problems.
    pub fn base(&self) -> &Trace {
        &self.base
    }

    /// The number of operations of each module; of none, those outside all modules.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, or is damaged where this reads it.
    pub fn count_operations(&self) -> Result<hashbrown::HashMap<ScopeId, u64>> {
        self.ops.count(&self.files)
    }

    /// The summaries of all events, in order.
    pub fn summaries(&self) -> &[Summary] {
        &self.summaries
    }

    /// The ordinals of the devices, in order, as [`Trace::device_ids`] has them.
    pub fn device_ids(&self) -> Vec<DeviceId> {
        let used = self.summaries.iter().flat_map(|row| &row.devices).filter(|row| row.is_named());
        let mut ids: Vec<DeviceId> = self.base.devices.iter().map(|facts| facts.device).collect();
        ids.extend(used.map(|row| row.device));
        ids.extend(self.starting.iter().filter(|state| !state.is_empty()).map(|state| state.device));
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// The numbers of events after which there are checkpoints, in order: windows that begin there cost least.
    pub fn checkpoints(&self) -> Vec<u64> {
        (0..).map_while(|number| self.checkpoints.events(number)).collect()
    }

    /// The default device, as [`Trace::main_device`] has it.
    pub fn main_device(&self) -> DeviceId {
        self.main_device
    }

    /// Whether the recording has steps or phases.
    pub fn has_stages(&self) -> bool {
        let kinds = [EventKind::Step, EventKind::Phase];
        let counts = self.summaries.iter().flat_map(|row| &row.devices).map(|device| device.counts);
        counts.into_iter().any(|counts| kinds.iter().any(|kind| counts[*kind as usize] > 0))
    }

    /// Reads the summaries of the files, up to the last checkpoint, or to where anything is wrong with them.
    fn take_summaries(&mut self) {
        self.checkpoints = Checkpoints::in_files(&self.files);
        for file in 0..self.files.parts().len() {
            let part = &self.files.parts()[file];
            let Ok(boundary) = self.checkpoints.boundary(&self.files, file, || self.at_start()) else { break };
            let Some(mut rows) = summaries_of(&part.sections) else { break };
            let count = rows.last().map_or(0, |row: &Summary| row.first + u64::from(row.events));
            if count > part.events.count {
                break;
            }
            if let Some(boundary) = boundary {
                let Ok(first) = self.first_summaries(file, &rows, boundary) else { break };
                let end = first.last().map_or(0, |row| row.first + u64::from(row.events) - part.first);
                rows.drain(..rows.partition_point(|row| row.first < end));
                self.summaries.extend(first);
            }
            for mut row in rows {
                part.renumber_summary(&mut row, boundary);
                self.summaries.push(row);
            }
            if count < part.events.count {
                break;
            }
        }
        let end = self.summaries.last().map_or(0, |row| row.first + u64::from(row.events));
        self.checkpoints.forget_after(end);
    }

    /// The number of the first file of several that does not begin with what was live at the end of the one before it.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be read.
    pub fn first_that_does_not_continue(&self) -> Result<Option<usize>> {
        for (file, part) in self.files.parts().iter().enumerate().skip(1) {
            let boundary = self.checkpoints.boundary(&self.files, file, || self.at_start())?;
            if boundary.is_some_and(|boundary| !part.continues(boundary)) {
                return Ok(Some(file));
            }
        }
        Ok(None)
    }

    /// Summarizes the first events of a file that continues another: as many as `rows`, its own summaries, have until
    /// the memory in use on each device is sampled, and at least the first row. The file does not know the last samples
    /// before it, and counts the step and the phase that it repeats.
    fn first_summaries(&self, file: usize, rows: &[Summary], boundary: &Boundary) -> Result<Vec<Summary>> {
        let part = &self.files.parts()[file];
        let mut unknown: Vec<DeviceId> = boundary.device_used.keys().copied().collect();
        let is_last = |row: &&Summary| {
            let sampled = row.devices.iter().filter(|device| device.counts[EventKind::DeviceUsed as usize] > 0);
            sampled.for_each(|device| unknown.retain(|id| *id != device.device));
            unknown.is_empty()
        };
        let last = rows.iter().find(is_last).or(rows.last());
        let end = part.first + last.map_or(0, |row| row.first + u64::from(row.events));
        let mut summarizer = self.at_checkpoint(part.first);
        self.files.summarize(&mut summarizer, part.first)?;
        summarizer.end_part();
        self.files.summarize(&mut summarizer, end)?;
        Ok(summarizer.end_part().0)
    }

    /// Restores the last checkpoint up to which there are summaries, and forgets what comes after it; begins with the
    /// recording if there is none.
    fn restore_last(&mut self) -> Summarizer {
        while let Some(events) = self.checkpoints.last_events() {
            let kept = self.summaries.partition_point(|row| row.first < events);
            let end = self.summaries[..kept].last().map_or(0, |row| row.first + u64::from(row.events));
            let number = self.checkpoints.before(u64::MAX).unwrap_or(0);
            if let Some(summarizer) = (end == events)
                .then(|| self.checkpoints.restore(&self.files, number, || self.at_start()).ok())
                .flatten()
            {
                self.summaries.truncate(kept);
                return summarizer;
            }
            self.checkpoints.forget_last();
        }
        self.summaries.clear();
        self.at_start()
    }

    /// What is live before the first event.
    fn at_start(&self) -> Summarizer {
        let mut summarizer = Summarizer::default();
        self.starting.iter().for_each(|state| summarizer.begin(state));
        summarizer
    }

    /// Summarizes the events after the last checkpoint, and makes further checkpoints of them.
    fn summarize_rest(&mut self, watch: Watch<'_>) -> Result<()> {
        let mut summarizer = self.restore_last();
        let (first, count) = (summarizer.events(), self.files.count);
        let (mut next, mut end) = (first + CHECKPOINT_EVENTS, 0_u64);
        let mut packer = Packer::new()?;
        let (mut failed, mut rows) = (None, Vec::new());
        let (checkpoints, summaries) = (&mut self.checkpoints, &mut rows);
        let length = self.files.length();
        let mut take = |_: u64, run: &[Event]| {
            summarizer.take(run);
            let done = summarizer.events();
            let share = u128::from(done - first) * u128::from(length) / u128::from((count - first).max(1));
            let share = share as u64;
            // As a writer does, so that checkpoints take little beside the file.
            if done >= next && share - end >= summarizer.live_blocks() * LEAST_BYTES_A_BLOCK {
                (next, end) = (done + CHECKPOINT_EVENTS, share);
                let (rows, deaths) = summarizer.end_part();
                summaries.extend(rows);
                if let Err(why) = checkpoints.add(&summarizer, &deaths, &mut packer) {
                    failed = Some(why);
                    return ControlFlow::Break(());
                }
            }
            let progress =
                Progress { bytes_read: share, bytes: length, events: done, events_in_all: Some(count), levels: None };
            let flow = watch(progress);
            if flow.is_break() {
                failed = Some(Error::Cancelled);
            }
            flow
        };
        self.files.read(first..count, &mut take)?;
        if let Some(why) = failed {
            return Err(why);
        }
        if summarizer.events() != count {
            let what = format!("its events are {}, but {count} are claimed", summarizer.events());
            return Err(Error::Damaged { offset: length, what });
        }
        if summarizer.events() > first {
            let (rows_left, deaths) = summarizer.end_part();
            rows.extend(rows_left);
            self.checkpoints.add(&summarizer, &deaths, &mut packer)?;
        }
        self.summaries.append(&mut rows);
        self.end = summarizer.states().map(|(device, live)| (device, live.clone())).collect();
        self.take_trust();
        Ok(())
    }

    /// Counts the contradictions of the events.
    fn take_trust(&mut self) {
        let devices = self.summaries.iter().flat_map(|row| &row.devices);
        let mut counted = Trust::default();
        for found in devices.map(|device| device.contradictions) {
            counted.unmatched_frees += u64::from(found.unmatched_frees);
            counted.repeated_allocs += u64::from(found.repeated_allocs);
            counted.unmatched_uses += u64::from(found.unmatched_uses);
            counted.unmatched_releases += u64::from(found.unmatched_releases);
        }
        let trust = &mut self.base.trust;
        trust.unmatched_frees = trust.unmatched_frees.max(counted.unmatched_frees);
        trust.repeated_allocs = trust.repeated_allocs.max(counted.repeated_allocs);
        trust.unmatched_releases = trust.unmatched_releases.max(counted.unmatched_releases);
        trust.unmatched_uses = counted.unmatched_uses;
    }

    fn find_main_device(&self) -> DeviceId {
        let rank = |id: &DeviceId| {
            let rows = || self.summaries.iter().flat_map(|row| &row.devices).filter(|row| row.device == *id);
            let ran_out = rows().any(|row| row.counts[EventKind::Oom as usize] > 0);
            let peak = rows().map(|row| row.largest(Metric::Requested).bytes).max().unwrap_or(0);
            (!self.base.is_host_memory(*id), ran_out, peak, std::cmp::Reverse(*id))
        };
        self.device_ids().into_iter().max_by_key(rank).unwrap_or_default()
    }
}

/// The summaries of a file; `None` if anything is wrong with them.
fn summaries_of(sections: &Sections) -> Option<Vec<Summary>> {
    let offsets: Vec<u64> = sections.of_kind(SectionKind::Summaries).map(|row| row.offset).collect();
    let read = parallel::map(&offsets, Unpacker::new, |unpacker, offset| -> Result<Vec<Summary>, String> {
        let found = sections.section(*offset).map_err(|why| why.to_string())?;
        let raw = unpacker.unpack(&found.section())?;
        rows_from_bytes(raw, found.header.count)
    });
    let mut rows: Vec<Summary> = Vec::new();
    for row in read.into_iter().collect::<Result<Vec<_>, _>>().ok()?.into_iter().flatten() {
        let next = rows.last().map_or(0, |last| last.first + u64::from(last.events));
        if row.first != next || !row.is_plausible() {
            return None;
        }
        rows.push(row);
    }
    Some(rows)
}
