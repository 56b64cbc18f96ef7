//! Reads parts of a recording: any window of its events, using memory proportional to the window. The state before the
//! window is restored from the last checkpoint before it, and the frees of its blocks after the window are looked up in
//! later checkpoints.
//!
//! A file without checkpoints, or with damaged ones, is read once from start to end to compute them.

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
use crate::trace::{DeviceUse, Start, Trace};

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
    /// Everything except events, blocks, segments and operations.
    base: Trace,
    starting: Vec<StartingState>,
    summaries: Vec<Summary>,
    shapes: ShapeRows,
    checkpoints: Checkpoints,
    /// The blocks that died according to all checkpoints, by device and key; read on first use.
    deaths: OnceLock<Vec<EndedBlock>>,
    /// The live state after the last event.
    end: Vec<(DeviceId, LiveState)>,
    device_uses: Vec<DeviceUse>,
}

type Watch<'a> = &'a mut (dyn FnMut(Progress) -> ControlFlow<()> + Send);

impl Windows {
    /// Opens a recording. Events after its last valid checkpoint are read, and `watch` is called regularly meanwhile.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is not a recording, is damaged, or has annotations or attributes other than
    /// shapes, which only [`read_bytes`](super::read_bytes) reads. Returns
    /// [`Error::Cancelled`](crate::Error::Cancelled) if `watch` breaks.
    pub fn open(source: Arc<dyn ByteSource>, watch: Watch<'_>) -> Result<Self> {
        Self::open_files(vec![(String::new(), source)], &(), watch)
    }

    /// Opens the files of a rotation, given in order with their names, as one recording. Each file except the first
    /// must continue the previous one. Summaries and checkpoints that the files lack are taken from `store`, or
    /// computed and saved there.
    ///
    /// # Errors
    /// Fails like [`Self::open`], or if the files do not belong to the same recording.
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

    /// Reads the whole recording.
    ///
    /// # Errors
    /// Fails like [`Self::window`].
    pub fn whole(&self) -> Result<Trace> {
        let mut trace = self.window(0..self.files.count)?;
        trace.0.start = Start { ops: trace.0.start.ops, ..Start::default() };
        Ok(trace)
    }

    /// Returns the number of events in a recording, without reading the events; `None` if its sections cannot be
    /// located.
    pub fn count_events(source: Arc<dyn ByteSource>) -> Option<u64> {
        let sections = Sections::locate(source).ok()?;
        EventSections::find(&sections).ok().map(|events| events.count)
    }

    /// Passes the events of `range` to `take` in order, in batches with the index of their first, until `take` breaks.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or if the part that is read is damaged.
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

    /// Everything except events, blocks, segments and operations: the header, devices, tables, trust and problems.
    pub fn base(&self) -> &Trace {
        &self.base
    }

    /// Returns the number of operations in each module; operations outside of all modules are under [`ScopeId::NONE`].
    ///
    /// # Errors
    /// Fails if the file cannot be read, or if the part that is read is damaged.
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

    /// The ordinals of all devices, in order, like [`Trace::device_ids`].
    pub fn device_ids(&self) -> Vec<DeviceId> {
        let used = self.summaries.iter().flat_map(|row| &row.devices).filter(|row| row.is_named());
        let mut ids: Vec<DeviceId> = self.base.devices.iter().map(|facts| facts.device).collect();
        ids.extend(used.map(|row| row.device));
        ids.extend(self.starting.iter().filter(|state| !state.is_empty()).map(|state| state.device));
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// Returns the event indices of checkpoints, in order. Windows that start at one of these are the fastest to read.
    pub fn checkpoints(&self) -> Vec<u64> {
        (0..).map_while(|number| self.checkpoints.events(number)).collect()
    }

    /// Returns the default device; see [`Trace::main_device`].
    pub fn main_device(&self) -> DeviceId {
        DeviceUse::main(&self.device_uses, |device| self.base.is_host_memory(device)).unwrap_or_default().device
    }

    /// Whether the recording has steps or phases.
    pub fn has_stages(&self) -> bool {
        let kinds = [EventKind::Step, EventKind::Phase];
        let counts = self.summaries.iter().flat_map(|row| &row.devices).map(|device| device.counts);
        counts.into_iter().any(|counts| kinds.iter().any(|kind| counts[*kind as usize] > 0))
    }

    /// Reads the summaries stored in the files, up to the last checkpoint or to the first invalid summary.
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

    /// Reads every section of the files and verifies its checksum.
    ///
    /// # Errors
    /// Fails if a section cannot be read, or is damaged.
    pub fn check_sections(&self) -> Result<()> {
        for part in self.files.parts() {
            let offsets: Vec<u64> = part.sections.rows.iter().map(|row| row.offset).collect();
            let check = |(): &mut (), offset: &u64| part.sections.section(*offset).map(drop);
            parallel::map(&offsets, || (), check).into_iter().collect::<Result<()>>()?;
        }
        Ok(())
    }

    /// The index of the first file at whose start the live blocks of a device differ, in number or requested bytes,
    /// from those at the end of the previous file; `None` if there is none.
    ///
    /// # Errors
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

    /// Computes the summaries at the start of a file that continues another, to replace the first of `rows`, which are
    /// the file's own. At least the first row is replaced, and as many as needed until the memory in use was sampled on
    /// each device. The file's own rows lack the last samples of the previous file, and count the repeated step and
    /// phase.
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

    fn at_start(&self) -> Summarizer {
        let mut summarizer = Summarizer::default();
        self.starting.iter().for_each(|state| summarizer.begin(state));
        summarizer
    }

    fn find_device_uses(&self) -> Vec<DeviceUse> {
        let of = |device: DeviceId| {
            let rows = || self.summaries.iter().flat_map(|row| &row.devices).filter(|row| row.device == device);
            let has_event = |kind: EventKind| rows().any(|row| row.counts[kind as usize] > 0);
            let has_start = self.starting.iter().any(|state| state.device == device && !state.is_empty());
            let peak = rows().map(|row| row.largest(Metric::Requested).bytes).max().unwrap_or(0);
            DeviceUse::of(device, has_start, has_event, peak)
        };
        self.device_ids().into_iter().map(of).collect()
    }

    /// Reports blocks that do not fit into the segments, using only the summaries.
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
            self.base.0.problems.retain(|known| known.what != found.what);
            self.base.0.problems.push(found);
        }
    }
}

/// The summaries stored in a file; `None` if any is invalid.
fn summaries_of(sections: &Sections) -> Option<Vec<Summary>> {
    let read = rows_of::<Summary>(sections, SectionKind::Summaries);
    let mut rows = read.into_iter().collect::<Result<Vec<_>, _>>().ok()?.concat();
    end_of(&rows, 0)?;
    let activity = rows_of::<StepActivityRow>(sections, SectionKind::StepActivity);
    activity.into_iter().flatten().flatten().for_each(|activity| activity.add_to(&mut rows));
    Some(rows)
}

/// The rows of all sections of a kind, section by section.
fn rows_of<T: DeserializeOwned + Send>(sections: &Sections, kind: SectionKind) -> Vec<Result<Vec<T>>> {
    let offsets: Vec<u64> = sections.of_kind(kind).map(|row| row.offset).collect();
    parallel::map(&offsets, Unpacker::new, |unpacker, offset| sections.section(*offset)?.rows(unpacker))
}
