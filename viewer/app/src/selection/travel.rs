//! Moves the view to the peak, a block's lifetime, a step or a moment; zooms and pans.

use std::ops::Range;

use highwater_analysis::Metric;
use highwater_snapshots::BlockId;

use super::{Axis, FLATTEST, HEADROOM, MIN_ROOM, NARROWEST, Pin, Selection, View, within};
use crate::Recording;

/// A moment is close to the peak if its total differs by at most this fraction of the peak (one divided by this).
const PEAK_PART: u64 = 50;
/// Minimum distance from the peak, in moments, that still counts as close to it.
const MIN_AROUND_PEAK: usize = 8;
/// Width of the view on each side of the peak, as a multiple of the width of the moments close to the peak.
const PEAK_ROOM: usize = 4;

impl Selection {
    /// Shows the whole recording.
    pub fn fit(&mut self, recording: &Recording) {
        let whole = self.whole(recording);
        self.show(recording, whole);
    }

    /// Shows the view [zoomed](View::zoomed).
    pub fn zoom(&mut self, recording: &Recording, factor: [f64; 2], center: [f64; 2]) {
        self.show(recording, self.view.zoomed(factor, center));
    }

    /// Shows the view [panned](View::panned).
    pub(crate) fn pan(&mut self, recording: &Recording, by: [f64; 2]) {
        self.show(recording, self.view.panned(by));
    }

    /// Centres the peak of the selected total, and zooms until it is clearly visible. The panels then show the peak.
    pub(crate) fn go_to_peak(&mut self, recording: &Recording) {
        let trace = &recording.trace;
        let peak = recording.devices[self.device].peak(trace, self.metric);
        let whole = self.whole(recording);
        let middle = self.middle_of(trace, peak.position());
        let around = self.moments_near_peak(recording, peak.position(), peak.bytes).saturating_mul(PEAK_ROOM);
        let [first, last] = [peak.position().saturating_sub(around), peak.position() + around];
        let half = (middle - self.x_of(trace, first)).max(self.x_of(trace, last) - middle);
        let width = whole.x.end - whole.x.start;
        let half = half.min(width / 6.0).max(NARROWEST);
        self.pin = None;
        let y = if peak.bytes == 0 { whole.y } else { 0.0..peak.bytes as f64 * (1.0 + HEADROOM) };
        self.show(recording, View { x: middle - half..middle + half, y });
    }

    /// Returns the distance in moments from the peak at which the total is clearly lower on both sides. Doubles the
    /// distance in each step, so that a flat total takes few look-ups.
    fn moments_near_peak(&self, recording: &Recording, peak: usize, bytes: u64) -> usize {
        let index = &recording.devices[self.device];
        let is_lower = |position: usize| {
            let total = index.series.before_position(&recording.trace, position).get(self.metric);
            !index.moments.contains(&position) || total < bytes - bytes / PEAK_PART
        };
        let mut distance = MIN_AROUND_PEAK;
        while distance < index.moments.len()
            && !(peak.checked_sub(distance).is_none_or(is_lower) && is_lower(peak + distance))
        {
            distance *= 2;
        }
        distance
    }

    /// Shows the lifetime of `block` with some space on both sides.
    pub(crate) fn go_to_block(&mut self, recording: &Recording, block: BlockId) {
        let trace = &recording.trace;
        let row = trace.blocks.get(block);
        let whole = self.whole(recording);
        let first = row.alloc.index().map_or(whole.x.start, |index| self.x_of(trace, index + 1));
        // A free that was requested before the recording has no event.
        let freed = if trace.was_waiting_at_start(block) { row.free_completed } else { row.free_requested };
        let end = freed.index().map_or(whole.x.end, |index| self.x_of(trace, index + 1));
        let room = ((end - first) * 0.1).max(MIN_ROOM);
        self.show(recording, View { x: first - room..end + room, y: self.view.y.clone() });
    }

    /// Shows `view`, clipped to the recording.
    pub fn show(&mut self, recording: &Recording, view: View) {
        self.view = view;
        self.clamp(recording);
    }

    /// Shows the moments `shown`, with a little space on both sides.
    pub(crate) fn show_moments(&mut self, recording: &Recording, shown: &Range<usize>) {
        let trace = &recording.trace;
        let (first, end) = (self.x_of(trace, shown.start), self.x_of(trace, shown.end + 1));
        let room = ((end - first) * 0.05).max(MIN_ROOM);
        self.show(recording, View { x: first - room..end + room, y: self.view.y.clone() });
    }

    pub(crate) fn events_in_view(&self, recording: &Recording) -> Range<u32> {
        let trace = &recording.trace;
        let first = self.moment_at(trace, self.view.x.start).saturating_sub(1) as u32;
        let end = match self.axis {
            Axis::Event => (self.view.x.end as usize).saturating_sub(1),
            Axis::Time => self.moment_at(trace, self.view.x.end),
        };
        first..(end.min(trace.events.len()) as u32).max(first + 1)
    }

    /// Returns whether the view reaches the end of the recording.
    pub fn is_at_end(&self, recording: &Recording) -> bool {
        let whole = self.whole(recording).x;
        whole.end - self.view.x.end <= (whole.end - whole.start) * 1e-9
    }

    /// Pins the moment after `moment` events, and scrolls to it if necessary.
    pub(crate) fn go_to_moment(&mut self, recording: &Recording, moment: usize) {
        let block = self.pin.and_then(|pin| pin.block);
        self.pin = Some(Pin { block, moment });
        let middle = self.middle_of(&recording.trace, moment);
        if !self.view.x.contains(&middle) {
            let half = (self.view.x.end - self.view.x.start) / 2.0;
            self.show(recording, View { x: middle - half..middle + half, y: self.view.y.clone() });
        }
    }

    /// Limits the view to the recording, and to a minimum size.
    pub(super) fn clamp(&mut self, recording: &Recording) {
        if let Some(bounds) = &self.bounds {
            self.view.x = within(&self.view.x, &bounds.x, NARROWEST);
            self.view.y = within(&self.view.y, &bounds.y, FLATTEST);
            return;
        }
        let whole = self.whole(recording);
        self.view.x = within(&self.view.x, &whole.x, NARROWEST);
        let capacity = recording.devices[self.device].summary.capacity_bytes as f64;
        let highest = 0.0..whole.y.end.max(capacity * (1.0 + HEADROOM));
        if self.fits_bytes {
            self.view.y = 0.0..self.top_in_view(recording) as f64 * (1.0 + HEADROOM);
        }
        self.view.y = within(&self.view.y, &highest, FLATTEST);
    }

    /// Returns the maximum of the selected total, and of the drawn total if it differs, among the visible moments.
    fn top_in_view(&self, recording: &Recording) -> u64 {
        let trace = &recording.trace;
        let index = &recording.devices[self.device];
        let first = self.moment_at(trace, self.view.x.start);
        let events = first..self.moment_at(trace, self.view.x.end).max(first + 1);
        let tops = [self.metric, Metric::Active].map(|metric| {
            let before = index.series.before_position(trace, first).get(metric);
            index.series.largest(trace, metric, events.clone()).map_or(before, |(bytes, _)| bytes.max(before))
        });
        if self.metric.is_of_blocks() { tops[0] } else { tops[0].max(tops[1]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selection::tests::recording;
    use highwater_notation::trace_from_text;

    #[test]
    fn the_peak_comes_into_the_middle_with_its_height_in_view() {
        let recording = recording();
        let mut selection = Selection::new(&recording);
        let whole = selection.view().clone();
        selection.go_to_peak(&recording);
        let View { x, y } = selection.view().clone();
        assert_eq!((x.start + x.end) / 2.0, 4.5);
        assert!(y.start == 0.0 && y.end > 400.0);
        assert_ne!(x, whole.x);
    }

    #[test]
    fn the_peak_is_many_pixels_wide_however_long_the_recording() {
        // A peak of three events among forty thousand, and a plateau of fifteen hundred events.
        let others = |from: usize| (0..10_000).map(move |n| format!("alloc b{} 10\nfree b{}\n", from + n, from + n));
        let text: String =
            others(0).chain(["alloc p 900\nalloc q 100\nfree q\nfree p\n".to_owned()]).chain(others(10_000)).collect();
        let recording = Recording::new("test", None, trace_from_text(&text).unwrap());
        let mut selection = Selection::new(&recording);
        for axis in [Axis::Event, Axis::Time] {
            selection.set_axis(&recording, axis);
            selection.go_to_peak(&recording);
            let View { x, .. } = selection.view().clone();
            let moments = selection.moment_at(&recording.trace, x.end) - selection.moment_at(&recording.trace, x.start);
            assert!((8..=80).contains(&moments), "{axis:?} {moments}");
        }
        let plateau: String = (0..500).map(|n| format!("alloc c{n} 1\nfree c{n}\n")).collect();
        let [before, after] = [0, 10_000].map(|from| others(from).collect::<String>());
        let text = format!("{before}alloc p 900\n{plateau}free p\n{after}");
        let recording = Recording::new("test", None, trace_from_text(&text).unwrap());
        let mut selection = Selection::new(&recording);
        selection.go_to_peak(&recording);
        let View { x, .. } = selection.view().clone();
        assert!((4_000.0..20_000.0).contains(&(x.end - x.start)), "{x:?}");
    }

    #[test]
    fn no_view_leaves_the_recording_or_becomes_too_narrow_to_show_anything() {
        let recording = recording();
        let mut selection = Selection::new(&recording);
        let whole = selection.view().clone();
        selection.pan(&recording, [-1e9, -1e9]);
        assert_eq!(*selection.view(), whole);
        selection.zoom(&recording, [1e-12, 1e-12], [4.5, 200.0]);
        let View { x, y } = selection.view();
        assert_eq!((x.end - x.start, y.end - y.start), (NARROWEST, FLATTEST));
        assert!(x.contains(&4.5) && y.contains(&200.0));
        selection.zoom(&recording, [1e12, 1e12], [4.5, 200.0]);
        assert_eq!(*selection.view(), whole);
    }

    #[test]
    fn a_blocks_life_is_shown_from_its_allocation_to_its_free() {
        let recording = recording();
        let mut selection = Selection::new(&recording);
        selection.go_to_block(&recording, BlockId(1));
        let View { x, .. } = selection.view();
        assert!(x.start < 4.0 && x.start > 3.0 && x.end > 6.0 && x.end < 7.0, "{x:?}");
    }

    #[test]
    fn the_height_follows_what_is_in_view_where_it_is_asked_to() {
        let text = "alloc a 100\nfree a\nalloc b 1000\nfree b\nalloc c 40";
        let recording = Recording::new("test", None, trace_from_text(text).unwrap());
        let mut selection = Selection::new(&recording);
        selection.set_fits_bytes(&recording, true);
        assert_eq!(selection.view().y.end, 1000.0 * (1.0 + HEADROOM));
        selection.show(&recording, View { x: 1.0..2.0, y: 0.0..1.0 });
        assert_eq!(selection.view().y, 0.0..100.0 * (1.0 + HEADROOM));
        let longer = Recording::new("test", None, trace_from_text(&format!("{text}\nalloc d 1")).unwrap());
        assert!(selection.carried_over(&recording, &longer).fits_bytes(), "also when the file was read again");
    }

    #[test]
    fn the_fitted_height_follows_the_total() {
        let text = "segment_alloc 0x1000 5000\nalloc a 100\nfree a";
        let recording = Recording::new("test", None, trace_from_text(text).unwrap());
        let mut selection = Selection::new(&recording);
        selection.set_fits_bytes(&recording, true);
        selection.set_metric(&recording, Metric::Requested);
        assert_eq!(selection.view().y.end, 100.0 * (1.0 + HEADROOM));
        selection.set_metric(&recording, Metric::Reserved);
        assert_eq!(selection.view().y.end, 5000.0 * (1.0 + HEADROOM));
    }

    #[test]
    fn the_events_in_view_lead_back_to_the_view() {
        let recording = recording();
        let mut selection = Selection::new(&recording);
        let x_of =
            |selection: &Selection| selection.x_of_events(&recording.trace, selection.events_in_view(&recording));
        assert_eq!((x_of(&selection), selection.is_at_end(&recording)), (selection.view().x.clone(), true));
        for x in [0.0..4.0, 2.0..5.0, 3.0..10.0] {
            selection.show(&recording, View { x: x.clone(), y: 0.0..1000.0 });
            assert_eq!((x_of(&selection), selection.is_at_end(&recording)), (x.clone(), x.end == 10.0));
        }
    }

    #[test]
    fn a_moment_out_of_view_comes_into_its_middle() {
        let text: String = (0..100).map(|n| format!("alloc b{n} 10\n")).collect();
        let recording = Recording::new("test", None, trace_from_text(&text).unwrap());
        let mut selection = Selection::new(&recording);
        selection.show(&recording, View { x: 0.0..10.0, y: 0.0..1000.0 });
        selection.go_to_moment(&recording, 5);
        assert_eq!(selection.view().x, 0.0..10.0, "it is in view");
        selection.go_to_moment(&recording, 50);
        assert_eq!((selection.view().x.clone(), selection.pin.map(|pin| pin.moment)), (45.5..55.5, Some(50)));
    }
}
