//! A recording of any length as a sequence of windows of events, each a trace. A recording in memory is a single
//! window. Of a file that is too long to be in memory, only a few windows are in memory at a time. Code outside this
//! module does not depend on this difference.

mod counts;
mod failed_requests;
mod peaks;
mod steps;

use std::borrow::Cow;
use std::io::Write;
use std::ops::{ControlFlow, Range};
use std::sync::{Arc, OnceLock};

use hashbrown::HashMap;
use highwater_snapshots::format::{Windows, write_trace};
use highwater_snapshots::ids::{DeviceId, EventId, ScopeId};
use highwater_snapshots::trace::Trace;
use highwater_snapshots::{Error, Result};
use rayon::prelude::*;

use crate::grouping::filter::Filter;
use crate::grouping::matches::counting_only;
use crate::index::addresses::AddressIndex;
use crate::index::live::LiveIndex;
use crate::index::series::Series;
use crate::rewrite::excerpt::without_stacks;

pub use counts::DeviceCounts;
pub use steps::{FoundStep, SoughtStep};

/// Maximum number of events of a window in a pass over a file; if checkpoints permit, windows have at least half as
/// many. Equals the usual distance between checkpoints.
const WINDOW_EVENTS: u64 = 1 << 21;

/// Callback that receives the number of events processed up to now and can stop the work.
pub type Watch<'a> = &'a mut dyn FnMut(u64) -> ControlFlow<()>;

/// A recording of any length that can be analyzed: in memory, or a file that is read in windows.
#[derive(Clone, Debug)]
pub struct Source<'s> {
    kind: Kind<'s>,
}

#[derive(Clone, Debug)]
enum Kind<'s> {
    InMemory(Arc<InMemory<'s>>),
    File(Arc<File>),
}

#[derive(Debug)]
struct InMemory<'s> {
    trace: TraceRef<'s>,
    /// The indexes of each device, built on first use.
    indexes: Vec<(DeviceId, OnceLock<Arc<DeviceIndex>>)>,
}

/// A trace that is owned jointly or borrowed.
#[derive(Clone, Debug)]
pub enum TraceRef<'s> {
    /// A trace with shared ownership.
    Shared(Arc<Trace>),
    /// A trace borrowed from the caller.
    Borrowed(&'s Trace),
}

impl From<Trace> for TraceRef<'_> {
    fn from(trace: Trace) -> Self {
        Self::Shared(Arc::new(trace))
    }
}

impl From<Arc<Trace>> for TraceRef<'_> {
    fn from(trace: Arc<Trace>) -> Self {
        Self::Shared(trace)
    }
}

impl<'s> From<&'s Trace> for TraceRef<'s> {
    fn from(trace: &'s Trace) -> Self {
        Self::Borrowed(trace)
    }
}

impl std::ops::Deref for TraceRef<'_> {
    type Target = Trace;

    fn deref(&self) -> &Trace {
        match self {
            Self::Shared(trace) => trace,
            Self::Borrowed(trace) => trace,
        }
    }
}

/// A recording in a file that is read in windows.
#[derive(Clone, Debug)]
struct File {
    windows: Arc<Windows>,
    /// A window without events, at the start of the recording.
    facts: Arc<Trace>,
    /// Maximum number of events of a window in a pass.
    window_events: u64,
    /// The filter that blocks must pass to be counted; all other blocks have size 0.
    filter: Filter,
    omits_stacks: bool,
}

/// The indexes of one device in a trace.
#[derive(Debug)]
pub struct DeviceIndex {
    /// The device's totals after each event.
    pub series: Series,
    /// The device's live blocks after each event.
    pub live: LiveIndex,
    addresses: OnceLock<AddressIndex>,
}

impl DeviceIndex {
    /// Builds the indexes of totals and live blocks, in parallel.
    pub fn build(trace: &Trace, device: DeviceId) -> Self {
        let (series, live) = rayon::join(|| Series::build(trace, device), || LiveIndex::build(trace, device));
        Self { series, live, addresses: OnceLock::new() }
    }

    /// The device's blocks and segments by address, in the same trace; built on first use.
    pub fn addresses(&self, trace: &Trace) -> &AddressIndex {
        self.addresses.get_or_init(|| AddressIndex::build(trace, self.series.device()))
    }
}

impl<'s> Source<'s> {
    /// Creates a source from a trace in memory.
    pub fn in_memory(trace: impl Into<TraceRef<'s>>) -> Self {
        let trace = trace.into();
        let indexes = trace.device_ids().into_iter().map(|device| (device, OnceLock::new())).collect();
        Self { kind: Kind::InMemory(Arc::new(InMemory { trace, indexes })) }
    }

    /// Creates a source that reads a recording in windows.
    ///
    /// # Errors
    /// Fails if the recording cannot be read.
    pub fn in_windows(windows: impl Into<Arc<Windows>>) -> Result<Self> {
        let windows = windows.into();
        let facts = Arc::new(windows.window(0..0)?);
        let (window_events, filter) = (WINDOW_EVENTS, Filter::default());
        let file = File { windows, facts, window_events, filter, omits_stacks: false };
        Ok(Self { kind: Kind::File(Arc::new(file)) })
    }

    /// Limits the windows of a pass over a file to `events` events. A recording in memory remains a single window.
    #[must_use]
    pub fn in_windows_of(self, events: u64) -> Self {
        match self.kind {
            Kind::InMemory(_) => self,
            Kind::File(file) => {
                let file = Arc::unwrap_or_clone(file);
                Self { kind: Kind::File(Arc::new(File { window_events: events.max(1), ..file })) }
            }
        }
    }

    /// Counts only the blocks that pass `filter`; all other blocks have size 0. Event indices do not change.
    #[must_use]
    pub fn counting(self, filter: &Filter) -> Self {
        match self.kind {
            _ if filter.is_empty() => self,
            Kind::InMemory(memory) => Self::in_memory(counting_only(trace_of(memory), filter)),
            Kind::File(file) => {
                let facts = Arc::new(counting_only(Trace::clone(&file.facts), filter));
                let file = File { facts, filter: filter.clone(), ..Arc::unwrap_or_clone(file) };
                Self { kind: Kind::File(Arc::new(file)) }
            }
        }
    }

    /// Omits the stacks and other texts of the program; see [`excerpt::without_stacks`](without_stacks).
    #[must_use]
    pub fn without_stacks(self) -> Self {
        match self.kind {
            Kind::InMemory(memory) => Self::in_memory(without_stacks(trace_of(memory))),
            Kind::File(file) => {
                let facts = Arc::new(without_stacks(Trace::clone(&file.facts)));
                let file = File { facts, omits_stacks: true, ..Arc::unwrap_or_clone(file) };
                Self { kind: Kind::File(Arc::new(file)) }
            }
        }
    }

    /// Returns the recording's header, devices, tables, limits and problems, as a trace with either all events or none.
    pub fn facts(&self) -> &Trace {
        match &self.kind {
            Kind::InMemory(memory) => &memory.trace,
            Kind::File(file) => &file.facts,
        }
    }

    /// Returns all events as a single window, for algorithms that cannot work window by window.
    ///
    /// # Errors
    /// Fails like [`Self::window`]. Returns [`Error::TooLong`] if the recording is read in several windows.
    pub fn whole(&self) -> Result<Window<'_>> {
        if self.passes().len() > 1 {
            return Err(Error::TooLong { events: self.count_events() });
        }
        self.window(self.events())
    }

    /// Returns the recording with its indexes if it is in memory; otherwise reads it.
    ///
    /// # Errors
    /// Fails like [`Self::whole`].
    pub fn resident(&self) -> Result<Source<'_>> {
        match &self.kind {
            Kind::InMemory(_) => Ok(self.clone()),
            Kind::File(_) => Ok(Source::in_memory(self.whole()?.trace.into_owned())),
        }
    }

    /// Writes the whole recording to `out` as a single `.snap` file.
    ///
    /// # Errors
    /// Fails if the recording cannot be read or `out` cannot be written. Returns [`Error::Cancelled`] if `watch`
    /// breaks.
    pub fn write<W: Write + Send>(&self, out: W, watch: &mut (dyn FnMut(u64) -> ControlFlow<()> + Send)) -> Result<W> {
        match &self.kind {
            Kind::InMemory(memory) => write_trace(out, &memory.trace),
            Kind::File(file) if file.omits_stacks => write_trace(out, &self.whole()?.trace),
            Kind::File(file) => file.windows.copy(out, &mut |now| watch(now.events)),
        }
    }

    /// Returns shared ownership of the whole recording; `None` if it is borrowed or not in memory.
    pub fn shared(&self) -> Option<Arc<Trace>> {
        match &self.kind {
            Kind::InMemory(memory) => match &memory.trace {
                TraceRef::Shared(trace) => Some(Arc::clone(trace)),
                TraceRef::Borrowed(_) => None,
            },
            Kind::File(_) => None,
        }
    }

    /// Checks the sections of the file against their checksums, unless that was done when the recording was read.
    pub(crate) fn check_sections(&self) -> Result<()> {
        self.windows().map_or(Ok(()), Windows::check_sections)
    }

    /// The reader of windows, if the recording is not in memory.
    pub fn windows(&self) -> Option<&Windows> {
        match &self.kind {
            Kind::InMemory(_) => None,
            Kind::File(file) => Some(&file.windows),
        }
    }

    /// Returns the indices of the events. They start at 0 unless the source is a trace that is a window of a longer
    /// recording.
    pub fn events(&self) -> Range<u64> {
        match &self.kind {
            Kind::InMemory(memory) => {
                let first = memory.trace.start.events;
                first..first + memory.trace.events.len() as u64
            }
            Kind::File(file) => 0..file.windows.events(),
        }
    }

    /// Returns the number of events.
    pub fn count_events(&self) -> u64 {
        let events = self.events();
        events.end - events.start
    }

    /// Returns a window with the existing events of `range`.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or if the part that is read is damaged.
    pub fn window(&self, range: Range<u64>) -> Result<Window<'_>> {
        match &self.kind {
            Kind::InMemory(memory) => {
                let first = self.events().start;
                let position = |event: u64| (event.saturating_sub(first) as usize).min(memory.trace.events.len());
                let events = position(range.start)..position(range.end).max(position(range.start));
                Ok(Window { trace: Cow::Borrowed(&memory.trace), events, memory: Some(memory) })
            }
            Kind::File(file) => {
                let trace = file.window(range)?;
                Ok(Window { events: 0..trace.events.len(), trace: Cow::Owned(trace), memory: None })
            }
        }
    }

    /// Returns a window that contains only `event`. For `None`, returns an empty window at the start of the recording.
    ///
    /// # Errors
    /// Fails like [`Self::window`], or if there is no such event.
    pub fn window_at(&self, event: Option<u64>) -> Result<Window<'_>> {
        let window = self.window(event.map_or(0..0, |event| event..event + 1))?;
        if let Some(event) = event.filter(|_| window.events.is_empty()) {
            let what = format!("its summaries refer to event {event}, which does not exist");
            return Err(Error::Damaged { offset: 0, what });
        }
        Ok(window)
    }

    /// Calls `map` with each window, several in parallel, and `take` with the results, in order.
    ///
    /// # Errors
    /// Fails if a window cannot be read. Returns [`Error::Cancelled`] if `watch` breaks.
    pub fn each_window<T: Send>(
        &self,
        map: impl Fn(&Trace) -> T + Sync,
        mut take: impl FnMut(T),
        watch: Watch<'_>,
    ) -> Result<()> {
        let take = |part| {
            take(part);
            Ok(())
        };
        self.try_each_window(|window| Ok(map(&window)), take, watch)
    }

    /// Like [`each_window`](Self::each_window), but `map` and `take` may fail, and `map` may keep the window.
    ///
    /// # Errors
    /// Fails like [`Self::each_window`], or if `map` or `take` fails.
    pub fn try_each_window<'a, T: Send>(
        &'a self,
        map: impl Fn(Cow<'a, Trace>) -> Result<T> + Sync,
        mut take: impl FnMut(T) -> Result<()>,
        watch: Watch<'_>,
    ) -> Result<()> {
        let file = match &self.kind {
            Kind::InMemory(memory) => {
                take(map(Cow::Borrowed(&memory.trace))?)?;
                return finished(watch(self.events().end));
            }
            Kind::File(file) => file,
        };
        for batch in file.passes().chunks(rayon::current_num_threads()) {
            let part = |range: &Range<u64>| file.window(range.clone()).and_then(|trace| map(Cow::Owned(trace)));
            let mapped: Vec<Result<T>> = batch.par_iter().map(part).collect();
            for part in mapped {
                take(part?)?;
            }
            finished(watch(batch.last().map_or(0, |range| range.end)))?;
        }
        Ok(())
    }

    /// Returns consecutive windows of `range`, of at most `most` events each, which fail like [`Self::window`].
    pub fn windows_within(&self, range: Range<u64>, most: u64) -> impl Iterator<Item = Result<Window<'_>>> {
        let end = range.end.min(self.events().end);
        (range.start..end).step_by(most as usize).map(move |start| self.window(start..end.min(start + most)))
    }

    /// Replaces the block ids of a window by those of the whole recording. Has no effect on a recording in memory.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn number_blocks<'a>(&self, window: Cow<'a, Trace>) -> Result<Cow<'a, Trace>> {
        let Kind::File(file) = &self.kind else { return Ok(window) };
        file.windows.number_blocks(window.into_owned()).map(Cow::Owned)
    }

    /// The ranges of events in which the whole recording is read, starting at checkpoints where possible.
    pub fn passes(&self) -> Vec<Range<u64>> {
        match &self.kind {
            Kind::InMemory(_) => vec![self.events()],
            Kind::File(file) => file.passes(),
        }
    }

    /// Returns the indexes of a device, of all events for a recording in memory, or of the starting state for a file.
    pub fn index(&self, device: DeviceId) -> Arc<DeviceIndex> {
        let memory = match &self.kind {
            Kind::InMemory(memory) => Some(&**memory),
            Kind::File(_) => None,
        };
        index(memory, self.facts(), device)
    }

    /// Returns the number of operations in each module; operations outside of all modules are under [`ScopeId::NONE`].
    ///
    /// # Errors
    /// Fails if the file cannot be read, or if the part that is read is damaged.
    pub fn count_operations(&self) -> Result<HashMap<ScopeId, u64>> {
        match &self.kind {
            Kind::InMemory(memory) => {
                let mut counts = HashMap::new();
                memory.trace.tables.ops.iter().for_each(|op| *counts.entry(op.scope).or_default() += 1);
                Ok(counts)
            }
            Kind::File(file) => file.windows.count_operations(),
        }
    }
}

/// Returns the trace; copies it only if it is shared or borrowed.
fn trace_of(memory: Arc<InMemory<'_>>) -> Trace {
    match Arc::try_unwrap(memory).map(|memory| memory.trace) {
        Ok(TraceRef::Shared(trace)) => Arc::unwrap_or_clone(trace),
        Ok(TraceRef::Borrowed(trace)) => trace.clone(),
        Err(shared) => Trace::clone(&shared.trace),
    }
}

/// Returns the indexes of a device in a trace. Those of the trace in `memory` are built only once.
fn index(memory: Option<&InMemory<'_>>, trace: &Trace, device: DeviceId) -> Arc<DeviceIndex> {
    let known = memory.and_then(|memory| memory.indexes.iter().find(|(known, _)| *known == device));
    let build = || Arc::new(DeviceIndex::build(trace, device));
    known.map_or_else(build, |(_, index)| Arc::clone(index.get_or_init(build)))
}

pub(super) fn finished(flow: ControlFlow<()>) -> Result<()> {
    if flow.is_break() { Err(Error::Cancelled) } else { Ok(()) }
}

impl File {
    fn window(&self, events: Range<u64>) -> Result<Trace> {
        let trace = counting_only(self.windows.window(events)?, &self.filter);
        Ok(if self.omits_stacks { without_stacks(trace) } else { trace })
    }

    fn passes(&self) -> Vec<Range<u64>> {
        let most = self.window_events;
        let checkpoints = self.windows.checkpoints().into_iter().chain([self.windows.events()]);
        let (mut ranges, mut start): (Vec<Range<u64>>, u64) = (Vec::new(), 0);
        for end in checkpoints {
            while end - start > most {
                ranges.push(start..start + most);
                start += most;
            }
            if end - start >= most / 2 || end == self.windows.events() && end > start {
                ranges.push(start..end);
                start = end;
            }
        }
        ranges
    }
}

/// A range of events of a recording, with a trace that contains these events and possibly others.
#[derive(Debug)]
pub struct Window<'a> {
    /// A trace that contains the events of the window.
    pub trace: Cow<'a, Trace>,
    /// The indices of the events in the trace.
    pub events: Range<usize>,
    memory: Option<&'a InMemory<'a>>,
}

impl Window<'_> {
    /// Returns the indexes of a device, which are built only once for a recording in memory.
    pub fn index(&self, device: DeviceId) -> Arc<DeviceIndex> {
        index(self.memory, &self.trace, device)
    }

    /// Returns the last event; `None` if there are no events.
    pub fn last(&self) -> Option<EventId> {
        self.events.clone().next_back().map(EventId::from_index)
    }
}
