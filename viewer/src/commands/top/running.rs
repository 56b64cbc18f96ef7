//! The state of a recording that is read event by event: the totals, peaks and steps of each device. Only the latest
//! events are kept, to restore the live blocks at a new peak.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use highwater_analysis::peak::counts_instead;
use highwater_analysis::{Metric, Totals};
use highwater_snapshots::event::Event;
use highwater_snapshots::format::Passed;
use highwater_snapshots::live_state::LiveState;
use highwater_snapshots::stage::Stage;
use highwater_snapshots::trace::DeviceUse;
use highwater_snapshots::{DeviceId, EventKind};

use super::curve::Curve;

/// Minimum number of events to keep before the state is copied again.
const SPAN_EVENTS: usize = 1 << 16;

/// Minimum number of events per live block before the live state is copied again.
const EVENTS_A_BLOCK: usize = 4;

/// Maximum number of steps with totals in memory.
const MAX_STEPS: usize = 64;

/// The moment of the maximum of a total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeakMoment {
    /// The total in bytes.
    pub bytes: u64,
    /// Number of events before the moment.
    pub position: u64,
    /// The step and phase of the peak.
    pub stage: Stage,
    /// Whether no later point with the same value [counts instead](counts_instead).
    is_final: bool,
}

/// The totals of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepTotals {
    /// The step number.
    pub step: u32,
    /// The largest value of each total within the step.
    pub peak: Totals,
    /// The totals after the latest event of the step.
    pub end: Totals,
    /// The times of the first and the last event of the step, in nanoseconds.
    pub times_ns: (u64, u64),
}

/// A device of a growing recording: its live blocks, peaks, curve and steps.
#[derive(Clone, Debug, Default)]
pub struct Device {
    live: LiveState,
    /// The moment of the maximum of each total, in the order of [`Metric::ALL`].
    pub peaks: [PeakMoment; Metric::ALL.len()],
    /// The totals over time.
    pub curve: Curve,
    /// The last steps, in order.
    pub steps: VecDeque<StepTotals>,
    first_step: Option<u32>,
    /// Whether blocks or segments were live before the first event.
    has_start: bool,
    counts: [u64; EventKind::ALL.len()],
}

impl Device {
    /// The current totals.
    pub fn totals(&self) -> &Totals {
        self.live.totals()
    }

    /// Returns the moment of the maximum of `metric`.
    pub fn peak(&self, metric: Metric) -> PeakMoment {
        self.peaks[metric as usize]
    }

    /// Whether the memory in use on the device was sampled.
    pub fn is_sampled(&self) -> bool {
        self.has(EventKind::DeviceUsed)
    }

    fn has(&self, kind: EventKind) -> bool {
        self.counts[kind as usize] > 0
    }

    /// Updates the peaks after an event, before which the totals were `before`.
    fn reach(&mut self, before: &Totals, position: u64, stage: &Stage) {
        let totals = *self.live.totals();
        for (peak, metric) in self.peaks.iter_mut().zip(Metric::ALL) {
            let (bytes, was) = (totals.get(metric), before.get(metric));
            let is_repeated = || !peak.is_final && bytes == peak.bytes && was < bytes && stage.step != self.first_step;
            if bytes > peak.bytes {
                let is_final = stage.step.is_none() || stage.step != self.first_step;
                *peak = PeakMoment { bytes, position, stage: *stage, is_final };
            } else if is_repeated() {
                peak.is_final = true;
                let [first, later] = [&peak.stage, stage].map(|stage| (stage.step, stage.phase));
                if counts_instead(first, self.first_step, later) {
                    (peak.position, peak.stage) = (position, *stage);
                }
            }
        }
    }

    /// Handles the end of the current step and the beginning of step `next`.
    fn begin_step(&mut self, ended: Option<u32>, next: Option<u32>, time_ns: u64) {
        let totals = *self.live.totals();
        if ended.is_some() && ended == self.first_step {
            // A total that only stays as high into the next step is not reached there.
            let stays = |(peak, metric): (&mut PeakMoment, Metric)| peak.is_final |= totals.get(metric) == peak.bytes;
            self.peaks.iter_mut().zip(Metric::ALL).for_each(stays);
        }
        if let Some(step) = next {
            self.steps.push_back(StepTotals { step, peak: totals, end: totals, times_ns: (time_ns, time_ns) });
            if self.steps.len() > MAX_STEPS {
                self.steps.pop_front();
            }
        }
    }
}

/// The latest events, and the blocks that were live before them.
#[derive(Clone, Debug, Default)]
struct Span {
    first: u64,
    stage: Stage,
    live: BTreeMap<DeviceId, LiveState>,
    events: Vec<Event>,
}

/// The live state of a device at some point.
#[derive(Clone, Debug)]
pub struct LiveThen {
    /// The live state.
    pub live: LiveState,
    /// The step and phase at that point.
    pub stage: Stage,
}

/// The state of a growing recording after the latest event.
#[derive(Clone, Debug, Default)]
pub struct Running {
    devices: BTreeMap<DeviceId, Device>,
    /// The number of events.
    pub events: u64,
    /// The current step and phase.
    pub stage: Stage,
    times_ns: Option<(u64, u64)>,
    span: Span,
    /// The live states at peaks before the span, by device and number of events.
    at_peaks: BTreeMap<(DeviceId, u64), Arc<LiveThen>>,
}

impl Running {
    /// The time from the first event to the last, in nanoseconds; 0 without times.
    pub fn duration_ns(&self) -> u64 {
        self.times_ns.map_or(0, |(first, last)| last - first)
    }

    /// Whether there are steps or phases.
    pub fn has_stages(&self) -> bool {
        let mut devices = self.devices.values();
        devices.any(|device| device.has(EventKind::Step) || device.has(EventKind::Phase))
    }

    /// Returns the device with this ordinal; `None` if it has neither events nor memory before the first event.
    pub fn device(&self, id: DeviceId) -> Option<&Device> {
        self.devices.get(&id)
    }

    /// The live state of every device.
    pub fn live(&self) -> Vec<(DeviceId, &LiveState)> {
        self.devices.iter().map(|(id, device)| (*id, &device.live)).collect()
    }

    /// The devices with memory or samples, with the facts that determine the default one.
    pub fn uses(&self) -> Vec<DeviceUse> {
        let of = |(id, device): (&DeviceId, &Device)| {
            let peak = device.peak(Metric::Requested).bytes;
            let facts = DeviceUse::of(*id, device.has_start, |kind| device.has(kind), peak);
            (facts.has_memory || device.is_sampled()).then_some(facts)
        };
        self.devices.iter().filter_map(of).collect()
    }

    /// The live states at the peaks of all devices and totals, by device and number of events. Those in an earlier file
    /// are unknown and omitted.
    pub(crate) fn at_peaks(&self) -> BTreeMap<(DeviceId, u64), Arc<LiveThen>> {
        let mut found = BTreeMap::new();
        for (&id, device) in &self.devices {
            for position in device.peaks.iter().map(|peak| peak.position) {
                if !found.contains_key(&(id, position))
                    && let Some(then) = self.live_at(id, position)
                {
                    found.insert((id, position), then);
                }
            }
        }
        found
    }

    /// The live state of a device after `position` events; `None` if it is neither among the latest events nor at a
    /// peak of this file.
    pub fn live_at(&self, device: DeviceId, position: u64) -> Option<Arc<LiveThen>> {
        if let Some(then) = self.at_peaks.get(&(device, position)) {
            return Some(Arc::clone(then));
        }
        let count = usize::try_from(position.checked_sub(self.span.first)?).ok()?;
        let mut stage = self.span.stage;
        let mut live = self.span.live.get(&device).cloned().unwrap_or_default();
        for (event, number) in self.span.events.get(..count)?.iter().zip(self.span.first..) {
            stage = stage.after(&event.what, number);
            if event.device == device {
                live.apply(event, live.transition(&event.what), number, &stage);
            }
        }
        Some(Arc::new(LiveThen { live, stage }))
    }

    /// Prepares for the next file of the same recording, which has its own tables and starts with the live blocks.
    pub(crate) fn begin_file(&mut self) {
        self.devices.values_mut().for_each(|device| device.live = LiveState::default());
        self.at_peaks.clear();
        // Nothing before the file can be found in its tables.
        self.begin_span();
    }

    /// Processes events that were read.
    pub fn take(&mut self, passed: &Passed) {
        for state in passed.starting.iter().filter(|state| state.device.0 < DeviceId::END) {
            let device = self.devices.entry(state.device).or_default();
            let before = *device.totals();
            device.live.begin(state);
            device.has_start |= !state.is_empty();
            device.reach(&before, self.events, &self.stage);
            let totals = *device.live.totals();
            match self.times_ns {
                Some((_, last)) => device.curve.add(last, &totals),
                None => device.curve.begin(&totals),
            }
        }
        if !passed.starting.is_empty() {
            self.span.live = self.devices.iter().map(|(id, device)| (*id, device.live.clone())).collect();
        }
        for event in passed.events.iter().filter(|event| event.device.0 < DeviceId::END) {
            self.take_event(event);
        }
    }

    fn take_event(&mut self, event: &Event) {
        let number = self.events;
        let kind = event.what.kind();
        if event.time_ns > 0 || self.times_ns.is_some() {
            let (first, last) = self.times_ns.unwrap_or((event.time_ns, event.time_ns));
            self.times_ns = Some((first.min(event.time_ns), last.max(event.time_ns)));
        }
        let stage = self.stage.after(&event.what, number);
        if stage.step != self.stage.step {
            let devices = self.devices.values_mut();
            devices.for_each(|device| device.begin_step(self.stage.step, stage.step, event.time_ns));
        }
        self.stage = stage;
        let device = self.devices.entry(event.device).or_default();
        let before = *device.totals();
        device.live.apply(event, device.live.transition(&event.what), number, &self.stage);
        device.counts[kind as usize] += 1;
        if kind.is_activity() && device.first_step.is_none() {
            device.first_step = self.stage.step;
        }
        device.reach(&before, number + 1, &self.stage);
        let totals = *device.totals();
        let at = self.times_ns.map_or(number, |(_, last)| last);
        device.curve.add(at, &totals);
        if let Some(step) = device.steps.back_mut().filter(|step| Some(step.step) == self.stage.step) {
            (step.peak, step.end) = (step.peak.max(&totals), totals);
            step.times_ns.1 = step.times_ns.1.max(event.time_ns);
        }
        self.span.events.push(*event);
        self.events += 1;
        if self.span.events.len() >= SPAN_EVENTS
            && self.span.events.len()
                >= EVENTS_A_BLOCK * self.devices.values().map(|of| of.live.block_count()).sum::<usize>()
        {
            self.at_peaks = self.at_peaks();
            self.begin_span();
        }
    }

    /// Copies the current live state, and drops the events before it.
    fn begin_span(&mut self) {
        let live = self.devices.iter().map(|(id, device)| (*id, device.live.clone())).collect();
        self.span = Span { first: self.events, stage: self.stage, live, events: Vec::new() };
    }
}
