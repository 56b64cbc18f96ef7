//! The displayed answer, computed from the recordings and then immutable.

use std::collections::HashMap;

use highwater_analysis::peak::Query;
use highwater_analysis::{
    Breakdown, Capacity, Filter, GroupKey, Metric, Moment, Peak, Siblings, Source, Totals, short_stack,
};
use highwater_snapshots::stage::Stage;
use highwater_snapshots::trace::{DeviceUse, Trust};
use highwater_snapshots::{DeviceId, Result};

use super::curve::Curve;
use super::running::{PeakMoment, StepTotals};
use super::watched::{State, Watched};

/// The user's choice of recording, device, total and grouping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The total that the list and the curve show.
    pub metric: Metric,
    /// The key of the groups.
    pub key: GroupKey,
    /// The index of the recording.
    pub row: usize,
    /// Number of times the user switched to the next device since the recording was selected.
    pub device: usize,
}

/// Everything that is shown on the screen.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The settings for which this answer was computed.
    pub choice: Choice,
    /// One line per recording.
    pub recordings: Vec<RecordingLine>,
    /// The selected recording; `None` if there is none.
    pub detail: Option<Detail>,
}

/// A recording in the list.
#[derive(Clone, Debug)]
pub struct RecordingLine {
    /// The recording's name.
    pub name: String,
    /// The rank of the recorded process.
    pub rank: Option<u32>,
    /// Whether more data is expected.
    pub state: State,
    /// The current value of the selected total on the default device.
    pub now: u64,
    /// The moment of the maximum of the selected total on the default device.
    pub peak: PeakMoment,
    /// The current step and phase.
    pub stage: Stage,
    /// The totals of the default device over time.
    pub curve: Curve,
}

/// The details of the chosen recording.
#[derive(Clone, Debug)]
pub struct Detail {
    /// The recording's name.
    pub name: String,
    /// The recorded program; empty if unknown.
    pub program: String,
    /// The device that is shown.
    pub device: DeviceId,
    /// Number of devices with memory or samples.
    pub device_count: usize,
    /// The device's name; empty if unknown.
    pub device_name: String,
    /// The memory of the device in bytes; `None` if it was not recorded.
    pub capacity: Option<u64>,
    /// Whether more data is expected.
    pub state: State,
    /// The number of events.
    pub events: u64,
    /// The current step and phase.
    pub stage: Stage,
    /// Whether there are steps or phases.
    pub has_stages: bool,
    /// The time from the first event to the last, in nanoseconds; 0 without times.
    pub duration_ns: u64,
    /// The current totals.
    pub totals: Totals,
    /// The peaks, in the order of [`Metric::ALL`].
    pub peaks: [PeakMoment; Metric::ALL.len()],
    /// Whether the memory in use on the device was sampled.
    pub is_sampled: bool,
    /// The totals over time.
    pub curve: Curve,
    /// The groups by category, and by the selected key.
    pub groups: [Groups; 2],
    /// The last steps, in order.
    pub steps: Vec<StepTotals>,
    /// The limits of accuracy and the notes on the file, one sentence each.
    pub notes: Vec<String>,
}

/// The groups that use memory at the peak and currently.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    /// The groups, largest at the peak first.
    pub rows: Vec<GroupRow>,
    /// Whether the groups at the peak are known. They are not if the state at the peak is no longer in memory.
    pub has_peak: bool,
}

/// A group of blocks that share a value of the grouping key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupRow {
    /// The common value of the group's blocks, as text.
    pub label: String,
    /// Bytes in the group's blocks at the peak.
    pub peak: u64,
    /// Bytes of the group's blocks currently.
    pub now: u64,
}

impl Groups {
    fn of(peak: Option<Breakdown>, now: Breakdown) -> Self {
        let has_peak = peak.is_some();
        let mut rows: Vec<GroupRow> = Vec::new();
        let mut row_of: HashMap<String, usize> = HashMap::new();
        let at_peak = peak.unwrap_or_default().groups.into_iter().map(|group| (group, true));
        for (mut group, is_at_peak) in at_peak.chain(now.groups.into_iter().map(|group| (group, false))) {
            let label = first(&mut group.key);
            let row = *row_of.entry(label.clone()).or_insert(rows.len());
            if row == rows.len() {
                rows.push(GroupRow { label, ..GroupRow::default() });
            }
            row_of.extend(group.members.iter_mut().map(|member| (first(member), row)));
            let bytes = if is_at_peak { &mut rows[row].peak } else { &mut rows[row].now };
            *bytes += group.bytes;
        }
        rows.sort_by_key(|row| std::cmp::Reverse((row.peak, row.now)));
        Self { rows, has_peak }
    }

    /// Returns at most `most` rows; if there are more, the last row sums up the rest.
    pub fn at_most(&self, most: usize) -> Vec<GroupRow> {
        if self.rows.len() <= most {
            return self.rows.clone();
        }
        let (listed, rest) = self.rows.split_at(most.saturating_sub(1));
        let sum = |of: fn(&GroupRow) -> u64| rest.iter().map(of).fold(0, u64::saturating_add);
        let label = format!("{} more", rest.len());
        let others = GroupRow { label, peak: sum(|row| row.peak), now: sum(|row| row.now) };
        listed.iter().cloned().chain((most > 0).then_some(others)).collect()
    }
}

fn first(key: &mut Vec<String>) -> String {
    if key.is_empty() { String::new() } else { key.swap_remove(0) }
}

/// A note for PyTorch recordings, whose steps and phases are annotations of the whole recording.
const NO_STAGES: &str = "steps and phases of PyTorch programs are not shown here: see highwater phases";

/// The key of the detail: the choice, the number of restarts of the recording, its events, whether it is complete, and
/// its note.
type DetailOf = (Choice, u64, u64, bool, Option<String>);

/// Identifies a peak: the index of the recording, its number of restarts, the device, the number of events before the
/// peak, and whether the recording is complete. The stacks of complete recordings are symbolized.
type PeakOf = (usize, u64, DeviceId, u64, bool);

/// Cached results of the last answer, for reuse in the next one.
#[derive(Debug, Default)]
pub struct Computed {
    detail: Option<(DetailOf, Detail)>,
    peak: Option<(PeakOf, Option<Source<'static>>)>,
}

impl Computed {
    /// Computes the answer from the recordings.
    pub fn answer(&mut self, watched: &mut [Watched], choice: Choice) -> Answer {
        let recordings = watched.iter().map(|one| line(one, choice.metric)).collect();
        let detail = watched.get_mut(choice.row).map(|one| {
            let (is_complete, note) = (one.state.is_whole(), one.note().map(str::to_owned));
            let of = (choice, one.restarts, one.running.events, is_complete, note);
            if let Some((_, detail)) = self.detail.as_ref().filter(|(known, _)| *known == of) {
                return Detail { state: one.state.clone(), ..detail.clone() };
            }
            let detail = self.detail(one, choice);
            self.detail = Some((of, detail.clone()));
            detail
        });
        Answer { choice, recordings, detail }
    }

    fn detail(&mut self, watched: &mut Watched, choice: Choice) -> Detail {
        let trace = watched.now();
        let devices: Vec<DeviceId> = watched.running.uses().iter().map(|one| one.device).collect();
        let main = devices.iter().position(|device| *device == trace.main_device()).unwrap_or(0);
        let device = devices.get((main + choice.device) % devices.len().max(1)).copied().unwrap_or_default();
        let (name, state) = (watched.name.clone(), watched.state.clone());
        let mut notes: Vec<String> = watched.note().into_iter().map(str::to_owned).collect();
        if let State::Failed(why) = &state {
            notes.push(why.clone());
        }
        notes.extend(trace.header.notes().map(str::to_owned));
        notes.extend(trace.problems.iter().map(ToString::to_string));
        // An unfinished recording is not a problem here.
        let trust = Trust { unfinished: false, ..trace.trust.clone() };
        notes.extend(trust.limits().into_iter().chain(trace.routine_sentences()));
        if trace.header.recorder == "PyTorch" && !watched.running.has_stages() {
            notes.push(NO_STAGES.to_owned());
        }
        let (program, capacity) =
            (trace.header.program.clone(), Capacity::recorded(&trace, device).map(|known| known.bytes));
        let device_name = trace.device_facts(device).map_or_else(String::new, |facts| facts.name.clone());
        let of_device = watched.running.device(device).cloned().unwrap_or_default();
        let groups = self.groups(watched, trace, device, choice, &mut notes);
        let running = &watched.running;
        Detail {
            name,
            program,
            device,
            device_count: devices.len(),
            device_name,
            capacity,
            state,
            events: running.events,
            stage: running.stage,
            has_stages: running.has_stages(),
            duration_ns: running.duration_ns(),
            totals: *of_device.totals(),
            peaks: of_device.peaks,
            is_sampled: of_device.is_sampled(),
            curve: of_device.curve.clone(),
            groups,
            steps: of_device.steps.iter().copied().collect(),
            notes,
        }
    }

    fn groups(
        &mut self,
        watched: &mut Watched,
        now: highwater_snapshots::Trace,
        device: DeviceId,
        choice: Choice,
        notes: &mut Vec<String>,
    ) -> [Groups; 2] {
        let position = watched.running.device(device).map_or(0, |of| of.peak(choice.metric).position);
        let is_complete = watched.state.is_whole();
        let peak_of = (choice.row, watched.restarts, device, position, is_complete);
        if self.peak.as_ref().is_none_or(|(known, _)| *known != peak_of) {
            self.peak = Some((peak_of, watched.at_peak(device, position)));
        }
        let at_peak = self.peak.as_ref().and_then(|(_, source)| source.as_ref());
        let now = Source::in_memory(now);
        let by = |key: GroupKey| -> Result<Groups> {
            let peak =
                at_peak.map(|source| broken_down(source, device, choice.metric, key, Siblings::Merged)).transpose()?;
            Ok(Groups::of(peak, broken_down(&now, device, choice.metric, key, Siblings::Each)?))
        };
        let mut or_note = |groups: Result<Groups>| {
            groups.unwrap_or_else(|why| {
                notes.push(why.to_string());
                Groups::default()
            })
        };
        [or_note(by(GroupKey::Category)), or_note(by(choice.key))]
    }
}

/// The groups of a recording without events.
fn broken_down(
    source: &Source<'_>,
    device: DeviceId,
    metric: Metric,
    key: GroupKey,
    siblings: Siblings,
) -> Result<Breakdown> {
    let window = source.window_at(None)?;
    let index = window.index(device);
    let moment = Moment::at(&window.trace, &index.series, metric, None);
    let query = Query { keys: &[key], top: usize::MAX, filter: &Filter::default(), siblings };
    let mut found = Peak::at(&window.trace, &index.live, &index.series, moment, &query).breakdown;
    if key == GroupKey::Stack {
        let named = found.groups.iter_mut().filter(|group| group.stack.is_some());
        named.for_each(|group| group.key = vec![short_stack(&window.trace.tables, group.stack).join(" < ")]);
    }
    Ok(found)
}

fn line(watched: &Watched, metric: Metric) -> RecordingLine {
    let running = &watched.running;
    // Which devices are host memory is not known without the facts.
    let main = DeviceUse::main(&running.uses(), |_| false);
    let device = main.and_then(|main| running.device(main.device));
    RecordingLine {
        name: watched.name.clone(),
        rank: watched.rank(),
        state: watched.state.clone(),
        now: device.map_or(0, |device| device.totals().get(metric)),
        peak: device.map(|device| device.peak(metric)).unwrap_or_default(),
        stage: running.stage,
        curve: device.map(|device| device.curve.clone()).unwrap_or_default(),
    }
}
