//! Summaries of a recording's events. The app draws an overview of the whole run from them without reading the events.

use serde::{Deserialize, Serialize};

use crate::builder::StartingState;
use crate::category::Category;
use crate::event::{BlockKey, Event, EventKind, What};
use crate::format::step_activity::{ActiveSteps, StepActivity};
use crate::ids::DeviceId;
use crate::live_state::{Ended, LiveState};
use crate::metric::{Metric, Totals};
use crate::stage::{Outside, Stage};
use crate::transition::{Contradictions, Named, Transition};

/// Number of events summarized by a row; the last row before a checkpoint may summarize fewer.
pub const STRIDE: u32 = 4096;

/// A summary of consecutive events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of events of the recording before the summarized ones.
    pub first: u64,
    /// Number of events.
    pub events: u32,
    /// The smallest and the largest time of these events, in nanoseconds since the recording's origin.
    pub times_ns: (u64, u64),
    /// Number of steps with a number larger than those of all earlier steps.
    pub steps: u32,
    /// Number of other steps that begin.
    pub repeated_steps: u32,
    /// The largest step number so far; `None` before the first step.
    pub largest_step: Option<u32>,
    /// Step and phase after these events.
    pub stage: Stage,
    /// The summary of each device, by ordinal; devices with neither live memory nor events are omitted.
    pub devices: Vec<DeviceSummary>,
    /// The steps in which devices are active; `None` if unknown. Stored in a separate section.
    #[serde(skip)]
    pub step_activity: Option<StepActivity>,
}

/// A summary of consecutive events on one device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceSummary {
    /// The device to which these values belong.
    pub device: DeviceId,
    /// Number of events of each kind on the device, indexed by the kind's code.
    pub counts: [u32; EventKind::ALL.len()],
    /// The smallest and the largest time of the device's events, ignoring steps and phases; `None` if there are none.
    pub times_ns: Option<(u64, u64)>,
    /// The maximum of each total, in the order of [`Metric::ALL`], over the state before the first event and the states
    /// after each event.
    pub largest: [Extreme; Metric::ALL.len()],
    /// The minimum of each total over the same states.
    pub smallest: [Extreme; Metric::ALL.len()],
    /// Requested bytes by category when their total first reached its maximum. A category that was assigned later is
    /// not included.
    pub by_category: [u64; Category::ALL.len()],
    /// The totals after the last event.
    pub end: Totals,
    /// Number of events that contradicted earlier events, by kind of contradiction.
    pub contradictions: Contradictions,
}

/// The minimum or maximum of a total, and the point at which it is first reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extreme<P = u32> {
    /// The value in bytes.
    pub bytes: u64,
    /// The point; in a summary, the number of events of its row up to there.
    pub after: P,
}

impl<P> Extreme<P> {
    /// Replaces a maximum by a larger one; of equal totals, the first one counts. Returns whether it was replaced.
    #[inline]
    pub fn raise(&mut self, bytes: u64, after: P) -> bool {
        let is_larger = bytes > self.bytes;
        if is_larger {
            *self = Self { bytes, after };
        }
        is_larger
    }
}

/// A block that was live at the previous checkpoint but is no longer live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedBlock {
    /// The device of the block.
    pub device: DeviceId,
    /// The key of the block.
    pub block: BlockKey,
    /// The block's last category.
    pub category: Category,
    /// The event at which the block stopped being live: its requested free, or without one, its completed free or the
    /// allocation that reused its key.
    pub at: Outside,
}

/// Summarizes events as they are written or read, and tracks the live state of every device.
#[derive(Clone, Debug, Default)]
pub struct Summarizer {
    devices: Vec<Option<Box<Device>>>,
    stage: Stage,
    /// The current row. Includes the time of the latest events and the largest step number.
    pub(super) row: Summary,
    active_steps: ActiveSteps,
    /// Number of changes of step in the current row, and number of changes that begin a step.
    step_changes: u32,
    steps_begun: u32,
    rows: Vec<Summary>,
    /// Number of events before the previous checkpoint.
    checkpoint: u64,
    deaths: Vec<EndedBlock>,
}

#[derive(Clone, Debug, Default)]
struct Device {
    live: LiveState,
    summary: DeviceSummary,
    /// The smallest and largest time of the row's events, ignoring steps and phases; [`NO_TIMES`] if there are none.
    times_ns: (u64, u64),
    /// Whether the requested total has just reached a new maximum and its categories are not stored yet.
    is_rising: bool,
    /// The steps of the row in which the device is active, and its number of active events before the current step.
    active_steps: ActiveSteps,
    active_before: u32,
}

impl Device {
    fn begin_row(&mut self, device: DeviceId) {
        let totals = *self.live.totals();
        let now = Metric::ALL.map(|metric| Extreme { bytes: totals.get(metric), after: 0 });
        let by_category = *self.live.by_category();
        self.summary = DeviceSummary { device, largest: now, smallest: now, by_category, ..DeviceSummary::default() };
        self.times_ns = NO_TIMES;
        self.is_rising = false;
        (self.active_steps, self.active_before) = Default::default();
    }

    /// Whether the device has been active since the latest change of step.
    fn is_active(&self) -> bool {
        self.summary.active_events() > self.active_before
    }

    /// Ends a part of the row at a change of step, like [`ActiveSteps::end`]. Returns whether the device was active.
    fn end_step(&mut self, is_first: bool, is_step: bool) -> bool {
        let is_active = self.is_active();
        self.active_before = self.summary.active_events();
        self.active_steps.end(is_active, is_first, is_step);
        is_active
    }

    /// Applies the event with index `number`, which is the `after`th event of the row. Returns the block
    /// that is no longer live, if any.
    #[inline]
    fn take(&mut self, event: &Event, number: u64, stage: &Stage, after: u32) -> Option<Ended> {
        let kind = event.what.kind();
        self.summary.counts[kind as usize] += 1;
        if !is_stage(kind) {
            self.times_ns = widened(self.times_ns, event.time_ns);
        }
        let done = self.live.transition(&event.what);
        if self.is_rising && adds_no_block(done) {
            self.note_categories();
        }
        let ended = self.live.apply(event, done, number, stage);
        let totals = self.live.totals();
        match done {
            Transition::Allocated { .. } | Transition::FreeRequested | Transition::FreeCompleted { .. } => {
                self.is_rising |= self.summary.offer(0, totals.requested, after);
                self.summary.offer(1, totals.allocated, after);
                self.summary.offer(2, totals.active, after);
            }
            Transition::Reserved | Transition::Released { .. } => {
                self.summary.offer(3, totals.reserved, after);
            }
            Transition::Sampled => {
                self.summary.offer(4, totals.device_used, after);
            }
            _ => {}
        }
        ended
    }

    fn note_categories(&mut self) {
        self.summary.by_category = *self.live.by_category();
        self.is_rising = false;
    }

    fn end_row(&mut self) -> DeviceSummary {
        if self.is_rising {
            self.note_categories();
        }
        self.summary.times_ns = (self.times_ns != NO_TIMES).then_some(self.times_ns);
        self.summary.end = *self.live.totals();
        self.summary.contradictions = self.live.take_contradictions();
        std::mem::take(&mut self.summary)
    }
}

impl DeviceSummary {
    /// Updates the minimum and maximum of the total with index `row`. Returns whether `bytes` is a new maximum.
    #[inline]
    fn offer(&mut self, row: usize, bytes: u64, after: u32) -> bool {
        if bytes < self.smallest[row].bytes {
            self.smallest[row] = Extreme { bytes, after };
        }
        self.largest[row].raise(bytes, after)
    }

    /// The maximum of `metric`.
    pub fn largest(&self, metric: Metric) -> Extreme {
        self.largest[metric as usize]
    }

    /// Returns whether an event shows that the device exists. Steps, phases and marks do not count, since they have a
    /// device without concerning it; frees, tags and uses do not count, since their block may be unknown.
    pub(super) fn is_named(&self) -> bool {
        let carried = [EventKind::Step, EventKind::Phase, EventKind::Mark];
        let unmatched = [EventKind::FreeRequested, EventKind::FreeCompleted, EventKind::Tag, EventKind::Used];
        let count = |kind: &EventKind| self.counts[*kind as usize] > 0;
        EventKind::ALL.iter().filter(|kind| !carried.contains(kind) && !unmatched.contains(kind)).any(count)
    }

    fn active_events(&self) -> u32 {
        let kinds = EventKind::ALL.iter().filter(|kind| kind.is_activity());
        kinds.map(|kind| self.counts[*kind as usize]).sum()
    }

    fn is_idle(&self) -> bool {
        self.counts.iter().all(|count| *count == 0) && self.end == Totals::default()
    }
}

impl Summary {
    /// Returns whether the values are possible, since a malicious file may contain any values.
    pub(super) fn is_plausible(&self) -> bool {
        let is_device = |summary: &DeviceSummary| {
            let extremes = summary.largest.iter().chain(&summary.smallest);
            summary.device.0 < DeviceId::END && extremes.into_iter().all(|found| found.after <= self.events)
        };
        let is_sorted = self.devices.is_sorted_by(|a, b| a.device < b.device);
        (1..=STRIDE).contains(&self.events) && is_sorted && self.devices.iter().all(is_device)
    }
}

impl Summarizer {
    /// Returns the number of blocks that are live or awaiting free.
    pub(super) fn live_blocks(&self) -> u64 {
        self.states().map(|(_, live)| live.block_count() as u64).sum()
    }

    pub(crate) fn begin(&mut self, state: &StartingState) {
        let Some(device) = device(&mut self.devices, state.device) else { return };
        device.live.begin(state);
        device.begin_row(state.device);
    }

    pub(crate) fn take(&mut self, events: &[Event]) {
        let mut left = events;
        while !left.is_empty() {
            let room = (STRIDE - self.row.events) as usize;
            let (run, rest) = left.split_at(room.min(left.len()));
            self.take_into_row(run);
            if self.row.events == STRIDE {
                self.end_row();
            }
            left = rest;
        }
    }

    fn take_into_row(&mut self, run: &[Event]) {
        let first = self.events();
        let mut times = if self.row.events == 0 { NO_TIMES } else { self.row.times_ns };
        for (event, position) in run.iter().zip(self.row.events..) {
            let number = first + u64::from(position - self.row.events);
            times = widened(times, event.time_ns);
            // Copying the stage for every event would cost more than all the rest.
            if is_stage(event.what.kind()) {
                self.begin_stage(&event.what, number);
            }
            let Some(device) = device(&mut self.devices, event.device) else { continue };
            let Some(ended) = device.take(event, number, &self.stage, position + 1) else { continue };
            if self.checkpoint > 0 && ended.birth.is_none_or(|birth| birth < self.checkpoint) {
                let at = Outside { event: number, time_ns: event.time_ns, stage: self.stage };
                self.deaths.push(EndedBlock { device: event.device, block: ended.block, category: ended.category, at });
            }
        }
        self.row.times_ns = times;
        self.row.events += run.len() as u32;
    }

    /// Updates the stage if `what`, the event with index `number`, begins a step or a phase.
    #[cold]
    fn begin_stage(&mut self, what: &What, number: u64) {
        let stage = self.stage.after(what, number);
        if stage.step != self.stage.step {
            let (is_first, is_step) = (self.step_changes == 0, self.stage.step.is_some());
            let devices = self.devices.iter_mut().flatten();
            let is_active = devices.fold(false, |any, device| device.end_step(is_first, is_step) | any);
            self.active_steps.end(is_active, is_first, is_step);
            self.step_changes += 1;
            self.steps_begun += u32::from(stage.step.is_some());
        }
        self.stage = stage;
        if let What::Step(step) = *what {
            match self.row.largest_step {
                Some(largest) if step <= largest => self.row.repeated_steps += 1,
                _ => {
                    self.row.steps += 1;
                    self.row.largest_step = Some(step);
                }
            }
        }
    }

    pub(crate) fn events(&self) -> u64 {
        self.row.first + u64::from(self.row.events)
    }

    pub(crate) fn stage(&self) -> Stage {
        self.stage
    }

    /// The live state of every device, by ordinal.
    pub(crate) fn states(&self) -> impl Iterator<Item = (DeviceId, &LiveState)> {
        let devices = self.devices.iter().enumerate();
        devices.filter_map(|(ordinal, device)| Some((DeviceId(ordinal as u16), &device.as_ref()?.live)))
    }

    /// Resumes after `row.first` events; `row` contains the values known at that point.
    pub(super) fn resume(row: Summary, states: Vec<(DeviceId, LiveState)>) -> Self {
        let mut summarizer = Self { stage: row.stage, checkpoint: row.first, row, ..Self::default() };
        for (id, live) in states {
            if let Some(device) = device(&mut summarizer.devices, id) {
                device.live = live;
                device.begin_row(id);
            }
        }
        summarizer
    }

    /// Ends the summaries before a checkpoint at the current event. Returns their rows, and the blocks that were live
    /// at the previous checkpoint but are no longer live.
    pub(crate) fn end_part(&mut self) -> (Vec<Summary>, Vec<EndedBlock>) {
        if self.row.events > 0 {
            self.end_row();
        }
        self.checkpoint = self.events();
        (std::mem::take(&mut self.rows), std::mem::take(&mut self.deaths))
    }

    fn end_row(&mut self) {
        let mut row = std::mem::take(&mut self.row);
        row.stage = self.stage;
        self.row.first = row.first + u64::from(row.events);
        self.row.largest_step = row.largest_step;
        self.row.times_ns = row.times_ns;
        let changes = std::mem::take(&mut self.step_changes) > 0;
        let begun = std::mem::take(&mut self.steps_begun);
        let mut activity =
            StepActivity { changes, begun, any: std::mem::take(&mut self.active_steps), devices: Vec::new() };
        let mut is_any_active = false;
        for (ordinal, device) in self.devices.iter_mut().enumerate() {
            let Some(device) = device else { continue };
            is_any_active |= device.is_active();
            device.active_steps.end_row(device.is_active(), !changes);
            if device.active_steps != ActiveSteps::default() {
                activity.devices.push((DeviceId(ordinal as u16), device.active_steps));
            }
            let summary = device.end_row();
            if !summary.is_idle() {
                row.devices.push(summary);
            }
            device.begin_row(DeviceId(ordinal as u16));
        }
        activity.any.end_row(is_any_active, !changes);
        row.step_activity = Some(activity);
        self.rows.push(row);
    }
}

/// The device with this ordinal, added if it is new; `None` if the ordinal is too large.
#[inline]
fn device(devices: &mut Vec<Option<Box<Device>>>, id: DeviceId) -> Option<&mut Device> {
    let ordinal = usize::from(id.0);
    if devices.get(ordinal).is_none_or(Option::is_none) {
        add_device(devices, id)?;
    }
    devices[ordinal].as_deref_mut()
}

#[cold]
fn add_device(devices: &mut Vec<Option<Box<Device>>>, id: DeviceId) -> Option<()> {
    let ordinal = usize::from(id.0);
    if id.0 >= DeviceId::END {
        return None;
    }
    if ordinal >= devices.len() {
        devices.resize_with(ordinal + 1, || None);
    }
    devices[ordinal].get_or_insert_default().begin_row(id);
    Some(())
}

/// Whether a transition changes the requested bytes by category other than by adding a block.
fn adds_no_block(done: Transition) -> bool {
    match done {
        Transition::Allocated { former } => former != Named::Unknown,
        Transition::FreeRequested | Transition::FreeCompleted { .. } | Transition::Tagged { .. } => true,
        _ => false,
    }
}

fn is_stage(kind: EventKind) -> bool {
    matches!(kind, EventKind::Step | EventKind::Phase)
}

/// Initial minimum and maximum time of a row without events.
const NO_TIMES: (u64, u64) = (u64::MAX, 0);

fn widened((smallest, largest): (u64, u64), time: u64) -> (u64, u64) {
    (smallest.min(time), largest.max(time))
}
