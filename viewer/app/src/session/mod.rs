//! An open recording with its indexes, which are built once.

pub mod absent;
pub mod regions;
pub mod run;

use std::ops::{ControlFlow, Range};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use highwater_analysis::{DeviceSummary, Leaks, Metric, Moment, PeakCause, Source, StepRange, StepWindow, source};
use highwater_snapshots::shown::printable;
use highwater_snapshots::{Category, DeviceId, EventId, Trace};
use rayon::prelude::*;

use self::absent::Absent;
use self::regions::Regions;
use self::run::{MAX_EVENTS, Run};

/// A recording in the app. It is immutable, and shared between the window and the threads that draw.
#[derive(Debug)]
pub struct Recording {
    /// The file from which the recording was read; `None` if it was passed in memory.
    pub path: Option<PathBuf>,
    /// The displayed name: that of the file, or of a prediction.
    pub name: String,
    /// The trace. The trace of a prediction is shared with the view that made the prediction.
    pub trace: Arc<Trace>,
    /// The same recording, in the form used by the analysis.
    pub source: Source<'static>,
    /// The devices, by ordinal; at least one.
    pub devices: Vec<DeviceIndex>,
    /// The training steps in order, each with its events.
    pub steps: Vec<(u32, Range<u32>)>,
    /// Named ranges, notes and failed requests.
    pub regions: Regions,
    /// Number of parts of the longest module path.
    pub deepest_scope: usize,
    /// The keys for which no block has a value.
    pub absent: Absent,
    /// The long recording that contains this part; `None` if the whole recording is in memory.
    pub run: Option<Arc<Run>>,
}

/// The indexes of a device: its totals and live blocks, and cached results.
#[derive(Debug)]
pub struct DeviceIndex {
    /// The device to which these indexes belong.
    pub device: DeviceId,
    index: Arc<source::DeviceIndex>,
    /// The device's peaks, its totals at the end, and its event counts.
    pub summary: DeviceSummary,
    /// The moments of the device's activity: from the moment before its first event to the moment after its last.
    pub moments: Range<usize>,
    /// The events after which whole steps end; computed with the first picture.
    pub(crate) step_ends: OnceLock<Vec<u64>>,
    /// The leaks, and their name if they have nearly all bytes of unknown category at the peak; computed on first use.
    leaks: OnceLock<Option<(Leaks, Option<String>)>>,
    /// The cause of each total's peak; computed on first use.
    causes: [OnceLock<Option<PeakCause>>; Metric::ALL.len()],
    /// The bytes of leaks at each total's peak; computed on first use after the leaks are known.
    leaked: [OnceLock<Option<u64>>; Metric::ALL.len()],
}

impl Recording {
    /// Builds the indexes of every device. Names in `trace` come from a file, and are made printable.
    pub fn new(name: impl Into<String>, path: Option<PathBuf>, trace: impl Into<Arc<Trace>>) -> Self {
        let trace = Trace::with_printable_texts(trace.into());
        let name = printable(&name.into()).into_owned();
        let mut ids = trace.device_ids();
        if ids.is_empty() {
            ids.push(DeviceId::default());
        }
        let source = Source::in_memory(Arc::clone(&trace));
        let devices = ids.into_par_iter().map(|device| DeviceIndex::build(&source, &trace, device));
        let others = || {
            let steps = steps_of(&trace);
            (Regions::of(&trace, &steps), Absent::of(&trace, !steps.is_empty()), steps, deepest_scope(&trace))
        };
        let (devices, (regions, absent, steps, deepest_scope)) = rayon::join(|| devices.collect(), others);
        Self { path, name, devices, steps, regions, deepest_scope, absent, trace, source, run: None }
    }

    /// Reads the part `events` of a long recording, and builds its indexes.
    ///
    /// # Errors
    /// Fails with a sentence if the file cannot be read.
    pub fn part(run: &Arc<Run>, events: Range<u64>) -> Result<Self, String> {
        Self::read(run, &run.source(), events)
    }

    /// Reads the last `length` events of a long recording, and builds their indexes.
    ///
    /// # Errors
    /// Fails with a sentence if the file cannot be read.
    pub(crate) fn last_part(run: &Arc<Run>, length: u64) -> Result<Self, String> {
        // The file may grow meanwhile.
        let source = run.source();
        let end = source.events().end;
        Self::read(run, &source, end.saturating_sub(length.min(MAX_EVENTS))..end)
    }

    fn read(run: &Arc<Run>, source: &Source<'_>, events: Range<u64>) -> Result<Self, String> {
        let part = source.window(events).map_err(|why| why.to_string())?;
        let part = Self::new(run.name(), Some(run.path().to_owned()), part.trace.into_owned());
        Ok(Self { run: Some(Arc::clone(run)), ..part })
    }

    /// Whether the program has not finished the recording, so that its file may still grow.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.run.as_ref().map_or(self.trace.trust.unfinished, |run| run.is_unfinished())
    }

    /// Returns a source for the whole recording, even if this is only a part of it.
    pub fn of_whole(&self) -> Source<'static> {
        self.run.as_ref().map_or_else(|| self.source.clone(), |run| run.source())
    }

    /// Returns the indices of this part's events in the whole recording.
    pub fn events(&self) -> Range<u64> {
        let first = self.trace.start.events;
        first..first + self.trace.events.len() as u64
    }

    /// Returns whether a step begins before this part, or may end after it. The events of the step are given by their
    /// indices in this part.
    pub(crate) fn cuts_off(&self, number: u32, events: &Range<u32>) -> bool {
        let Some(run) = &self.run else { return false };
        let start = &self.trace.start;
        let begins_before = events.start == 0 && start.events > 0 && start.stage.step == Some(number);
        let is_last = events.end as usize >= self.trace.events.len();
        begins_before || is_last && self.events().end < run.events()
    }

    /// Returns the ends of a device's whole steps, as `highwater growth` finds them, from the first one on. Computed
    /// once.
    pub(crate) fn step_ends(&self, device: usize) -> &[u64] {
        let index = &self.devices[device];
        index.step_ends.get_or_init(|| {
            // The first steps of the recording may be those of other devices.
            let window = self.steps.iter().find_map(|(step, _)| {
                let range = StepRange { from: Some(*step), ..StepRange::default() };
                StepWindow::of(&self.source, index.device, range).ok()?.ok()
            });
            let is_cut = self.steps.last().is_some_and(|(step, events)| self.cuts_off(*step, events));
            let steps = window.filter(StepWindow::is_whole).map(|window| window.steps).unwrap_or_default();
            let ends = steps.iter().map(|(_, events)| events.end);
            let mut ends: Vec<u64> = ends.filter(|end| !is_cut || *end < self.events().end).collect();
            // Steps with the same number are merged, so ends may be out of order.
            ends.sort_unstable();
            ends
        })
    }

    /// Returns the index of the default device.
    pub fn main_device(&self) -> usize {
        let main = self.trace.main_device();
        self.devices.iter().position(|index| index.device == main).unwrap_or(0)
    }

    /// Returns the label of the device with index `row`: its ordinal, and its name if known.
    pub(crate) fn device_label(&self, row: usize) -> String {
        let index = &self.devices[row];
        match index.summary.name.as_str() {
            "" => format!("device {}", index.device.0),
            name => format!("{}: {name}", index.device.0),
        }
    }
}

impl std::ops::Deref for DeviceIndex {
    type Target = source::DeviceIndex;

    fn deref(&self) -> &source::DeviceIndex {
        &self.index
    }
}

impl DeviceIndex {
    fn build(source: &Source<'_>, trace: &Trace, device: DeviceId) -> Self {
        let index = source.index(device);
        let is_ours = |at: &DeviceId| *at == device;
        let first = trace.events.device.iter().position(is_ours);
        let last = trace.events.device.iter().rposition(is_ours);
        let moments = first.unwrap_or(0)..last.map_or(0, |last| last + 1) + 1;
        let summary = DeviceSummary::of(source, device, &mut |_| ControlFlow::Continue(()));
        let summary = summary.expect("a recording in memory could not be read");
        let (step_ends, leaks, causes, leaked) = Default::default();
        Self { device, summary, index, moments, step_ends, leaks, causes, leaked }
    }

    /// Returns the leaks of requested memory, as found by `highwater growth`. Computed once. `None` without complete
    /// steps, or in a part of a long recording, which may lack steps.
    pub fn leaks(&self, source: &Source<'_>) -> Option<&Leaks> {
        let find = || {
            let trace = source.facts();
            if trace.start.all_events.is_some() {
                return None;
            }
            let leaks = Leaks::of_all_steps(source, self.device)?;
            let peak = self.peak(trace, Metric::Requested);
            let (mut unknown, mut leaking) = (0, 0);
            for id in self.live.before_position(trace, peak.metric, peak.position()) {
                if trace.blocks.category[id.0 as usize] == Category::Unknown {
                    let bytes = trace.blocks.requested[id.0 as usize];
                    unknown += bytes;
                    leaking += if leaks.has(trace, id) { bytes } else { 0 };
                }
            }
            let of_unknown = match leaking {
                all if all == unknown && all > 0 => Some(leaks.name()),
                most if most > unknown / 10 * 9 => Some("unknown, mostly leaks".to_owned()),
                _ => None,
            };
            Some((leaks, of_unknown))
        };
        self.leaks.get_or_init(find).as_ref().map(|(leaks, _)| leaks)
    }

    pub(crate) fn known_leaks(&self) -> Option<&Leaks> {
        self.leaks.get()?.as_ref().map(|(leaks, _)| leaks)
    }

    /// Returns the name of the leaks if `category` is unknown and nearly all such bytes at the peak are leaked.
    pub(crate) fn leak_of(&self, category: &str) -> Option<&str> {
        self.leaks.get()?.as_ref()?.1.as_deref().filter(|_| category == Category::Unknown.name())
    }

    /// Returns the cause of the peak of `metric`, computed once; `None` if it has none.
    pub fn cause(&self, source: &Source<'_>, metric: Metric) -> Option<&PeakCause> {
        let find = || PeakCause::of(source, &self.peak(source.facts(), metric)).ok().flatten();
        self.causes[metric as usize].get_or_init(find).as_ref()
    }

    /// Returns the leaks, and their bytes at the peak of `metric`. `None` if they have not been computed, or if their
    /// share of the peak is negligible.
    pub fn leaked(&self, trace: &Trace, metric: Metric) -> Option<(&Leaks, u64)> {
        let leaks = self.known_leaks()?;
        let sum = || {
            let peak = self.peak(trace, metric);
            leaks.bytes_at(trace, &peak, &self.live.before_position(trace, metric, peak.position()))
        };
        Some((leaks, (*self.leaked[metric as usize].get_or_init(sum))?))
    }

    /// Returns the first moment at which `metric` is largest.
    pub fn peak(&self, trace: &Trace, metric: Metric) -> Moment {
        self.summary.peak(metric).copied().unwrap_or_else(|| {
            // A total that was never sampled has no peak.
            Moment::at(trace, &self.series, metric, None)
        })
    }

    /// Returns the moment after `position` events.
    pub fn moment(&self, trace: &Trace, metric: Metric, position: usize) -> Moment {
        let event = position.checked_sub(1).map(EventId::from_index);
        Moment::at(trace, &self.series, metric, event.filter(|event| (event.0 as usize) < trace.events.len()))
    }
}

/// Returns the number of names in the longest module path. In the table, parents come before their children.
fn deepest_scope(trace: &Trace) -> usize {
    let scopes = &trace.tables.scopes;
    let mut depths: Vec<usize> = Vec::with_capacity(scopes.len());
    for scope in scopes {
        let parent = scope.parent.index().and_then(|parent| depths.get(parent));
        depths.push(parent.copied().unwrap_or(0) + 1);
    }
    depths.into_iter().max().unwrap_or(0)
}

/// Returns the steps in order, each with its events. Uses a single pass, since looking up each step would need a pass
/// each.
fn steps_of(trace: &Trace) -> Vec<(u32, Range<u32>)> {
    let mut steps: Vec<(u32, Range<u32>)> = Vec::new();
    for span in trace.spans.rows() {
        let Some(step) = span.step else { continue };
        match steps.last_mut().filter(|(last, _)| *last == step) {
            Some((_, events)) => events.end = span.end.0,
            None => steps.push((step, span.first.0..span.end.0)),
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_notation::trace_from_text;

    #[test]
    fn a_recording_knows_its_devices_their_peaks_and_where_they_live() {
        let text = "
            alloc x 5 device=1
            alloc a 10 @net.layer.0
            alloc b 30
            free a
            alloc c 40 device=1
        ";
        let recording = Recording::new("test", None, trace_from_text(text).unwrap());
        assert_eq!(recording.devices.len(), 2);
        assert_eq!(recording.deepest_scope, 3);
        assert_eq!(recording.device_label(recording.main_device()), "device 1");
        let peak = recording.devices[0].peak(&recording.trace, Metric::Requested);
        assert_eq!((peak.bytes, peak.position()), (40, 3));
        assert_eq!(recording.devices[0].moments, 1..6);
        assert_eq!(recording.devices[1].moments, 0..7);
    }

    #[test]
    fn a_category_of_which_not_all_leaks_is_not_called_a_leak() {
        let step =
            |n: u32| format!("step {n}\nalloc kept{n} 100 < cache < main\nalloc t{n} 1 < forward < main\nfree t{n}\n");
        let text: String = (0..30).map(step).collect();
        let recording = Recording::new("test", None, trace_from_text(&text).unwrap());
        let index = &recording.devices[0];
        assert!(index.leaks(&recording.source).is_some());
        assert_eq!(index.leak_of("unknown"), Some("unknown, mostly leaks"));
        assert_eq!(index.leak_of("gradient"), None);
    }

    #[test]
    fn steps_know_their_events() {
        let text = "alloc a 1\nstep 0\nphase forward\nalloc b 1\nstep 1\nalloc c 1";
        let recording = Recording::new("test", None, trace_from_text(text).unwrap());
        assert_eq!(recording.steps, [(0, 1..4), (1, 4..6)]);
    }

    #[test]
    fn an_empty_recording_opens_with_one_device_and_nothing_on_it() {
        let recording = Recording::new("empty", None, Trace::default());
        let peak = recording.devices[0].peak(&recording.trace, Metric::Requested);
        assert_eq!((peak.bytes, peak.event), (0, None));
        assert_eq!(recording.devices[0].moment(&recording.trace, Metric::Active, 7).event, None);
    }
}
