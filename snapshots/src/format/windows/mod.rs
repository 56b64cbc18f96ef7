//! Reads parts of a recording: any window of its events, in memory in proportion to the window. What was live before
//! the window comes from the last checkpoint before it, and what happens to its blocks later from those after it.
//!
//! A file without checkpoints, or whose checkpoints are damaged, is read once from start to end to compute them.

mod sections;
mod shapes;
mod events;
mod file_facts;
mod files;
mod ops;
mod computed;
mod checkpoints;
mod rest;
mod window;
mod numbers;
mod copy;
#[cfg(not(target_family = "wasm"))]
mod rotated;

use std::ops::{ControlFlow, Range};
use std::sync::{Arc, OnceLock};

use serde::de::DeserializeOwned;

use crate::builder::StartingState;
use crate::byte_source::{ByteSource, NamedSource};
use crate::error::Result;
use crate::event::{Event, EventKind};
use crate::format::kind::SectionKind;
use crate::format::parallel;
use crate::format::reader::Progress;
use crate::format::section::Unpacker;
use crate::format::step_rows::StepActivityRow;
use crate::format::summary::{DeviceSummary, EndedBlock, Summarizer, Summary};
use crate::ids::{DeviceId, ScopeId};
use crate::live_state::LiveState;
use crate::metric::Metric;
use crate::sum_rule::Excess;
use crate::trace::{DeviceUse, Start, Trace, main_use};

pub use computed::ComputedStore;

use checkpoints::Checkpoints;
use computed::end_of;
use events::EventSections;
use files::{Boundary, Files};
use ops::OpSections;
use sections::Sections;
use shapes::ShapeRows;

/// A recording that is read in parts.
#[derive(Debug)]
pub struct Windows {
    files: Files,
    ops: OpSections,
    /// Everything but events, blocks, segments and operations.
    base: Trace,
    starting: Vec<StartingState>,
    summaries: Vec<Summary>,
    shapes: ShapeRows,
    checkpoints: Checkpoints,
    /// The deaths that all checkpoints name, by device and key, in order; read when many are needed.
    deaths: OnceLock<Vec<EndedBlock>>,
    /// The live state after the last event.
    end: Vec<(DeviceId, LiveState)>,
    device_uses: Vec<DeviceUse>,
}

/// Watches a long pass over the file, and can stop it.
type Watch<'a> = &'a mut (dyn FnMut(Progress) -> ControlFlow<()> + Send);

impl Windows {
    /// Opens a recording; `watch` is called from time to time while all of it is read, which is done if it has no
    /// checkpoints.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be read, is not a recording, is damaged, or has annotations or attributes other than shapes,
    /// which only [`read_bytes`](super::read_bytes) reads; or with [`Error::Cancelled`](crate::Error::Cancelled) if
    /// `watch` breaks.
    pub fn open(source: Arc<dyn ByteSource>, watch: Watch<'_>) -> Result<Self> {
        Self::open_files(vec![(String::new(), source)], &(), watch)
    }

    /// Opens the files of a rotation as one recording, in their order and each with its name. All but the first begin
    /// where the one before ends. What has to be computed because the files lack it is taken from `store`, or else is
    /// saved there.
    ///
    /// # Errors
    ///
    /// As [`Self::open`], and if they are not of one recording.
    pub fn open_files(sources: Vec<NamedSource>, store: &dyn ComputedStore, watch: Watch<'_>) -> Result<Self> {
        let (files, base, starting) = Files::open(sources)?;
        let mut windows = Self {
            summaries: Vec::new(),
            shapes: ShapeRows::new(),
            checkpoints: Checkpoints::default(),
            deaths: OnceLock::new(),
            end: Vec::new(),
            device_uses: Vec::new(),
            ops: OpSections::default(),
            files,
            base,
            starting,
        };
        windows.take_summaries();
        windows.summarize_rest(store, watch)?;
        windows.take_shapes()?;
        windows.device_uses = windows.find_device_uses();
        windows.check_sums();
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

    /// Opens a recording as [`Self::open_files`] does if it has more than `most` events; `None` if it has not.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn open_longer(
        source: Arc<dyn ByteSource>,
        most: u64,
        store: &dyn ComputedStore,
        watch: Watch<'_>,
    ) -> Result<Option<Self>> {
        let sections = Sections::locate(Arc::clone(&source))?;
        let is_longer = EventSections::find(&sections)?.count > most;
        is_longer.then(|| Self::open_files(vec![(String::new(), source)], store, watch)).transpose()
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

    /// The state before the first event.
    pub fn starting(&self) -> &[StartingState] {
        &self.starting
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
        main_use(&self.device_uses, |device| self.base.is_host_memory(device)).unwrap_or_default().device
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

    /// Reads every section of the files, and compares it with its checksum.
    ///
    /// # Errors
    ///
    /// Fails if a section cannot be read, or is damaged.
    pub fn check_sections(&self) -> Result<()> {
        for part in self.files.parts() {
            let offsets: Vec<u64> = part.sections.rows.iter().map(|row| row.offset).collect();
            let check = |(): &mut (), offset: &u64| part.sections.section(*offset).map(drop);
            parallel::map(&offsets, || (), check).into_iter().collect::<Result<()>>()?;
        }
        Ok(())
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

    /// The state before the first event.
    fn at_start(&self) -> Summarizer {
        let mut summarizer = Summarizer::default();
        self.starting.iter().for_each(|state| summarizer.begin(state));
        summarizer
    }

    fn find_device_uses(&self) -> Vec<DeviceUse> {
        let of = |device: DeviceId| {
            let rows = || self.summaries.iter().flat_map(|row| &row.devices).filter(|row| row.device == device);
            let of_memory = [EventKind::Alloc, EventKind::SegmentAlloc, EventKind::SegmentMap, EventKind::Oom];
            let has_event = |kind: EventKind| rows().any(|row| row.counts[kind as usize] > 0);
            let has_start = || self.starting.iter().any(|state| state.device == device && !state.is_empty());
            DeviceUse {
                device,
                has_memory: has_start() || of_memory.into_iter().any(has_event),
                ran_out: has_event(EventKind::Oom),
                peak: rows().map(|row| row.largest(Metric::Requested).bytes).max().unwrap_or(0),
            }
        };
        self.device_ids().into_iter().map(of).collect()
    }

    /// Notes where blocks do not fit into the segments, as far as summaries show it.
    fn check_sums(&mut self) {
        if !self.base.trust.has_all_segments() {
            return;
        }
        for device in self.device_ids() {
            let rows = || {
                let of_device = |row: &Summary| row.devices.iter().find(|of| of.device == device).cloned();
                self.summaries.iter().filter_map(move |row| Some((row.first, of_device(row)?)))
            };
            let exceeded = |(first, row): (u64, DeviceSummary)| {
                let [active, reserved] = [Metric::Active, Metric::Reserved].map(|metric| row.largest(metric));
                let at_most = Excess { active: active.bytes, reserved: reserved.bytes };
                (at_most.active > at_most.reserved).then_some((first + u64::from(active.after), at_most))
            };
            let has_segments = rows().any(|(_, row)| row.largest(Metric::Reserved).bytes > 0);
            let all = rows().filter_map(exceeded).filter(|_| has_segments);
            let by_most = |first: (u64, Excess), next: (u64, Excess)| (first.0, first.1.larger(next.1));
            let Some((events, excess)) = all.reduce(by_most) else { continue };
            let found = excess.problem(device, events);
            self.base.problems.retain(|known| known.what != found.what);
            self.base.problems.push(found);
        }
    }
}

/// The summaries of a file; `None` if anything is wrong with them.
fn summaries_of(sections: &Sections) -> Option<Vec<Summary>> {
    let read = rows_of::<Summary>(sections, SectionKind::Summaries);
    let mut rows = read.into_iter().collect::<Result<Vec<_>, _>>().ok()?.concat();
    end_of(&rows, 0)?;
    let activity = rows_of::<StepActivityRow>(sections, SectionKind::StepActivity);
    activity.into_iter().flatten().flatten().for_each(|activity| activity.add_to(&mut rows));
    Some(rows)
}

/// The rows of each section of a kind.
fn rows_of<T: DeserializeOwned + Send>(sections: &Sections, kind: SectionKind) -> Vec<Result<Vec<T>>> {
    let offsets: Vec<u64> = sections.of_kind(kind).map(|row| row.offset).collect();
    parallel::map(&offsets, Unpacker::new, |unpacker, offset| sections.section(*offset)?.rows(unpacker))
}
