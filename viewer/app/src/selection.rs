//! The selection of a timeline: device, total, axis, visible range and pinned block. Independent of drawing.

mod travel;
mod steps;

use std::ops::Range;

use highwater_analysis::Metric;
use highwater_snapshots::{BlockId, EventId, Trace};

use crate::Recording;

/// The unit of the horizontal axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Axis {
    /// By event; all events have the same width.
    #[default]
    Event,
    /// By time in nanoseconds.
    Time,
}

/// The total that is drawn as a stack of blocks if `metric` is selected.
pub fn drawn_metric(metric: Metric) -> Metric {
    if metric.is_of_blocks() { metric } else { Metric::Active }
}

/// The visible range: horizontally in units of the axis (moments or nanoseconds), vertically in bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// The visible range of the axis, from left to right.
    pub x: Range<f64>,
    /// The visible bytes, from bottom to top.
    pub y: Range<f64>,
}

impl View {
    /// The view scaled by `factor` in both directions, with the point `center` (axis, bytes) fixed.
    pub fn zoomed(&self, factor: [f64; 2], center: [f64; 2]) -> Self {
        let scaled = |range: &Range<f64>, factor: f64, center: f64| {
            center + (range.start - center) * factor..center + (range.end - center) * factor
        };
        Self { x: scaled(&self.x, factor[0], center[0]), y: scaled(&self.y, factor[1], center[1]) }
    }

    /// The view moved by a distance on the axis and in bytes.
    pub(crate) fn panned(&self, by: [f64; 2]) -> Self {
        Self { x: self.x.start + by[0]..self.x.end + by[0], y: self.y.start + by[1]..self.y.end + by[1] }
    }
}

/// A block and a moment that the panels show until the user unpins them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin {
    /// The pinned block; `None` if only a moment is pinned.
    pub block: Option<BlockId>,
    /// Number of events before the moment.
    pub moment: usize,
}

/// The state of the view of one recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Selection {
    /// Index of the device.
    pub device: usize,
    /// The total that bands, marker and panels show.
    pub metric: Metric,
    /// The unit of the horizontal axis; use [`Self::set_axis`] to change it.
    axis: Axis,
    view: View,
    /// The block and moment that the user has pinned; `None` if nothing is pinned.
    pub pin: Option<Pin>,
    /// Two moments, A and B, between which blocks are compared: those allocated, freed and kept between them.
    pub marks: [Option<usize>; 2],
    /// Whether the height of the view follows the largest total in it.
    fits_bytes: bool,
    /// Limits of the view if they differ from the recording's extent, as for two recordings with common axes.
    bounds: Option<View>,
}

/// The message shown if the axis cannot show time.
pub const NO_TIMES: &str = "The recording has no times.";

/// Minimum width of the view: two events, so that the axis can label one, or two nanoseconds.
pub(crate) const NARROWEST: f64 = 2.0;
/// Minimum margin on each side of the visible range, in units of the axis.
pub(crate) const MIN_ROOM: f64 = 0.25;
/// Minimum height of the view in bytes.
pub(crate) const FLATTEST: f64 = 16.0;
/// Free space above the highest total, as a fraction of it.
pub(crate) const HEADROOM: f64 = 0.12;

impl Selection {
    /// Selects the whole recording of the default device, by event.
    pub fn new(recording: &Recording) -> Self {
        let device = recording.main_device();
        let view = View { x: 0.0..1.0, y: 0.0..1.0 };
        let mut selection = Self {
            device,
            metric: Metric::default(),
            axis: Axis::Event,
            view,
            pin: None,
            marks: [None; 2],
            fits_bytes: false,
            bounds: None,
        };
        selection.view = selection.whole(recording);
        selection
    }

    /// Returns the unit of the horizontal axis.
    pub fn axis(&self) -> Axis {
        self.axis
    }

    /// Returns the visible range.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Returns the view that shows the whole device, with some space above its highest total and lines.
    pub fn whole(&self, recording: &Recording) -> View {
        let index = &recording.devices[self.device];
        let trace = &recording.trace;
        let moments = &index.moments;
        let (first, end) = (self.x_of(trace, moments.start), self.x_of(trace, moments.end));
        // On the time axis, the last state has no end, so it gets some space.
        let room = if self.axis == Axis::Time { (end - first) * 0.01 } else { 0.0 };
        let x = first..(end + room).max(first + 1.0);
        let tops = [Metric::Active, Metric::Reserved, self.metric].map(|metric| index.peak(trace, metric).bytes);
        let top = tops.into_iter().max().unwrap_or(0).max(FLATTEST as u64) as f64;
        View { x, y: 0.0..top * (1.0 + HEADROOM) }
    }

    /// Returns the start of moment `position` on the axis.
    pub(crate) fn x_of(&self, trace: &Trace, position: usize) -> f64 {
        let time = |index: usize| trace.events.time_of(EventId::from_index(index)).unwrap_or(0) as f64;
        match self.axis {
            Axis::Event => position as f64,
            Axis::Time => match position.min(trace.events.len()).checked_sub(1) {
                // The baseline has no beginning, so it has no width on the time axis.
                None => time(0),
                Some(last) => time(last),
            },
        }
    }

    /// Returns the range on the axis of the states after `events`; after the first event, including the baseline.
    pub fn x_of_events(&self, trace: &Trace, events: Range<u32>) -> Range<f64> {
        let moments = moments_after(&events);
        self.x_of(trace, moments.start)..self.x_of(trace, moments.end)
    }

    /// Returns the middle of moment `position` on the axis; on the time axis, its beginning.
    pub fn middle_of(&self, trace: &Trace, position: usize) -> f64 {
        self.x_of(trace, position) + if self.axis == Axis::Event { 0.5 } else { 0.0 }
    }

    /// Returns the number of events before `x` on the axis.
    pub(crate) fn moment_at(&self, trace: &Trace, x: f64) -> usize {
        match self.axis {
            Axis::Event => (x.max(0.0) as usize).min(trace.events.len()),
            Axis::Time => trace.events.time_ns.partition_point(|&time| time as f64 <= x),
        }
    }

    /// Changes the axis while the same moments stay visible. The axis of a recording without times cannot be time.
    pub fn set_axis(&mut self, recording: &Recording, axis: Axis) {
        let trace = &recording.trace;
        if axis == self.axis || axis == Axis::Time && !trace.has_times() {
            return;
        }
        let shown = self.moment_at(trace, self.view.x.start)..self.moment_at(trace, self.view.x.end);
        let was_whole = self.view.x == self.whole(recording).x;
        // The bounds are in units of the other axis.
        self.bounds = None;
        self.axis = axis;
        let whole = self.whole(recording).x;
        let x = self.x_of(trace, shown.start)..self.x_of(trace, shown.end.max(shown.start + 1));
        self.view.x = if was_whole || x.end <= x.start { whole } else { x };
        self.clamp(recording);
    }

    /// Changes the device and shows all of it. A total that the device does not have is replaced by the default total.
    pub fn set_device(&mut self, recording: &Recording, device: usize) {
        self.device = device.min(recording.devices.len() - 1);
        self.metric = self.metric_on_device(recording);
        self.pin = None;
        self.marks = [None; 2];
        self.view = self.whole(recording);
        self.clamp(recording);
    }

    /// Returns the selected total, or the default total if the device does not have it.
    fn metric_on_device(&self, recording: &Recording) -> Metric {
        let peaks = &recording.devices[self.device].summary.peaks;
        if peaks.iter().any(|peak| peak.metric == self.metric) { self.metric } else { Metric::default() }
    }

    /// Transfers the selection to `recording`, a newer version of `former`: the same device, total, axis and view if
    /// they exist. A view of everything still shows everything.
    pub(crate) fn carried_over(&self, former: &Recording, recording: &Recording) -> Self {
        let mut selection = Self { axis: self.axis, metric: self.metric, ..Self::new(recording) };
        let id = former.devices[self.device].device;
        let Some(device) = recording.devices.iter().position(|index| index.device == id) else {
            selection.metric = selection.metric_on_device(recording);
            selection.view = selection.whole(recording);
            return selection;
        };
        selection.device = device;
        selection.metric = selection.metric_on_device(recording);
        let (was, now) = (self.whole(former), selection.whole(recording));
        let x = if self.view.x == was.x { now.x } else { self.view.x.clone() };
        let y = if self.view.y == was.y { now.y } else { self.view.y.clone() };
        selection.view = View { x, y };
        selection.fits_bytes = self.fits_bytes;
        selection.clamp(recording);
        selection
    }

    /// Changes the total; if the view shows the full height, it is adjusted.
    pub fn set_metric(&mut self, recording: &Recording, metric: Metric) {
        let showed_all = self.view.y == self.whole(recording).y;
        self.metric = metric;
        if showed_all {
            self.view.y = self.whole(recording).y;
        }
        self.clamp(recording);
    }

    /// Returns the moments A and B in order; `None` unless both are set and differ.
    pub fn range(&self) -> Option<Range<usize>> {
        let [Some(a), Some(b)] = self.marks else { return None };
        (a != b).then(|| a.min(b)..a.max(b))
    }

    /// Limits the view to `bounds` instead of the recording's extent, and shows `view`.
    pub fn link(&mut self, recording: &Recording, view: View, bounds: View) {
        self.bounds = Some(bounds);
        self.show(recording, view);
    }

    /// Returns whether the height of the view follows the largest total in it.
    pub fn fits_bytes(&self) -> bool {
        self.fits_bytes
    }

    pub(crate) fn set_fits_bytes(&mut self, recording: &Recording, fits_bytes: bool) {
        self.fits_bytes = fits_bytes;
        self.clamp(recording);
    }
}

/// Returns the moments after `events`; after the first event, including the baseline.
fn moments_after(events: &Range<u32>) -> Range<usize> {
    let first = if events.start == 0 { 0 } else { events.start as usize + 1 };
    first..events.end as usize + 1
}

/// Moves and scales `range` to lie within `outer`, with a length between `least` and the length of `outer`.
pub(crate) fn within(range: &Range<f64>, outer: &Range<f64>, least: f64) -> Range<f64> {
    let length = range.end - range.start;
    // Large offsets lose the last digits, so a full view is set exactly.
    if length >= (outer.end - outer.start) * (1.0 - 1e-9) {
        return outer.clone();
    }
    // A range that is long enough keeps its length exactly, so that moving back and forth changes nothing.
    let (start, length) =
        if length < least { ((range.start + range.end - least) / 2.0, least) } else { (range.start, length) };
    let start = start.min(outer.end - length).max(outer.start);
    start..start + length
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_notation::trace_from_text;

    pub(super) fn recording() -> Recording {
        let text = "
            step 0 t=0us
            phase forward t=0us
            alloc a 100 t=10us
            alloc b 300 t=20us
            phase backward t=30us
            free b t=40us
            free a t=100us
        ";
        Recording::new("test", None, trace_from_text(text).unwrap())
    }

    #[test]
    fn places_on_both_axes_lead_back_to_their_moments() {
        let recording = recording();
        let mut selection = Selection::new(&recording);
        for axis in [Axis::Event, Axis::Time] {
            selection.set_axis(&recording, axis);
            for moment in [3, 4, 5, 7, 9] {
                let x = selection.middle_of(&recording.trace, moment);
                assert_eq!(selection.moment_at(&recording.trace, x), moment, "{axis:?}");
            }
        }
        assert_eq!(selection.x_of(&recording.trace, 4), 20_000.0);
    }

    #[test]
    fn another_device_has_views_and_totals_of_its_own() {
        let text = "alloc a 10\ndevice_used 500\nalloc b 10\nalloc c 5 device=1";
        let recording = Recording::new("test", None, trace_from_text(text).unwrap());
        let mut selection = Selection::new(&recording);
        selection.set_metric(&recording, Metric::DeviceUsed);
        selection.go_to_peak(&recording);
        selection.set_device(&recording, 1);
        assert_eq!(selection.metric, Metric::default());
        assert_eq!(*selection.view(), selection.whole(&recording), "no view of the other device stays");
    }

    #[test]
    fn a_file_read_again_keeps_what_is_looked_at() {
        let former = Recording::new("test", None, trace_from_text("alloc a 10\nalloc b 20\nalloc c 30").unwrap());
        let longer = "alloc a 10\nalloc b 20\nalloc c 30\nalloc d 40\nalloc e 50";
        let longer = Recording::new("test", None, trace_from_text(longer).unwrap());
        let mut selection = Selection::new(&former);
        let kept = selection.carried_over(&former, &longer);
        assert_eq!(*kept.view(), kept.whole(&longer), "everything stays everything");
        selection.set_metric(&former, Metric::Reserved);
        selection.zoom(&former, [0.5, 0.5], [2.0, 10.0]);
        let kept = selection.carried_over(&former, &longer);
        assert_eq!((kept.view(), kept.metric), (selection.view(), Metric::Reserved));
    }
}
