//! The view settings of a file, restored when it is opened again.

use std::path::PathBuf;

use highwater_analysis::Metric;
use highwater_snapshots::DeviceId;
use serde::{Deserialize, Serialize};

use crate::gui::views::timeline::Stacking;
use crate::{Axis, ColourBy, Recording, Selection, View};

/// The view settings of a file. Settings that are not stored have default values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FileStyle {
    /// The path of the file, which identifies its settings.
    pub path: PathBuf,
    /// The ordinal of the device.
    pub device: u16,
    /// The total that the timeline shows.
    pub metric: Metric,
    /// The unit of the horizontal axis.
    pub axis: Axis,
    /// The key of the colours, and the stacking order.
    pub colours: Option<(ColourBy, Stacking)>,
    /// Number of events of the recording; the visible range is restored only if this number is unchanged.
    pub events: usize,
    /// The visible range of the axis; `None` for everything.
    pub x: Option<[f64; 2]>,
    /// The visible range of bytes; `None` for everything.
    pub y: Option<[f64; 2]>,
}

impl FileStyle {
    /// The view settings of `recording`; `None` if it has no file.
    pub(crate) fn of(
        recording: &Recording,
        selection: &Selection,
        colour_by: ColourBy,
        stacking: Stacking,
    ) -> Option<Self> {
        let (view, whole) = (selection.view(), selection.whole(recording));
        Some(Self {
            path: recording.path.clone()?,
            device: recording.devices.get(selection.device)?.device.0,
            metric: selection.metric,
            axis: selection.axis(),
            colours: Some((colour_by, stacking)),
            events: recording.trace.events.len(),
            // The shown part of a long recording is not stored.
            x: (view.x != whole.x && recording.run.is_none()).then_some([view.x.start, view.x.end]),
            y: (view.y != whole.y && recording.run.is_none()).then_some([view.y.start, view.y.end]),
        })
    }

    /// Applies these settings to `recording` where possible.
    pub(crate) fn apply(&self, recording: &Recording, selection: &mut Selection) {
        let device = DeviceId(self.device);
        let Some(device) = recording.devices.iter().position(|index| index.device == device) else { return };
        if device != selection.device {
            selection.set_device(recording, device);
        }
        if recording.devices[device].summary.peaks.iter().any(|peak| peak.metric == self.metric) {
            selection.set_metric(recording, self.metric);
        }
        selection.set_axis(recording, self.axis);
        let is_sound = |range: &[f64; 2]| range.iter().all(|end| end.is_finite()) && range[0] < range[1];
        if self.events != recording.trace.events.len()
            || recording.run.is_some()
            || (self.x.is_none() && self.y.is_none())
        {
            return;
        }
        let mut view: View = selection.view().clone();
        if let Some([start, end]) = self.x.filter(is_sound) {
            view.x = start..end;
        }
        if let Some([start, end]) = self.y.filter(is_sound) {
            view.y = start..end;
        }
        selection.show(recording, view);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_analysis::GroupKey;
    use highwater_notation::trace_from_text;

    const TEXT: &str = "alloc x 5 device=1\nalloc a 100 t=10us\nalloc y 50 device=1\nalloc b 300\nfree y device=1";

    fn recording(text: &str) -> Recording {
        Recording::new("a.snap", Some(PathBuf::from("/a.snap")), trace_from_text(text).unwrap())
    }

    fn look(recording: &Recording) -> (Selection, FileStyle) {
        let mut selection = Selection::new(recording);
        selection.set_device(recording, 1);
        selection.set_metric(recording, Metric::Allocated);
        selection.set_axis(recording, Axis::Time);
        selection.zoom(recording, [0.5, 0.5], [2000.0, 10.0]);
        let look = FileStyle::of(recording, &selection, ColourBy(GroupKey::Op), Stacking::Colour).unwrap();
        (selection, look)
    }

    #[test]
    fn a_file_opened_again_looks_as_it_was_left() {
        let recording = recording(TEXT);
        let (left, look) = look(&recording);
        let stored = serde_json::to_string(&look).unwrap();
        let look: FileStyle = serde_json::from_str(&stored).unwrap();
        let mut selection = Selection::new(&recording);
        look.apply(&recording, &mut selection);
        assert_eq!((selection.device, selection.metric, selection.axis()), (1, Metric::Allocated, Axis::Time));
        assert_eq!(selection.view(), left.view());
        assert_eq!(look.colours, Some((ColourBy(GroupKey::Op), Stacking::Colour)));
    }

    #[test]
    fn a_file_that_has_changed_shows_all_of_itself() {
        let (_, look) = look(&recording(TEXT));
        let longer = recording(&format!("{TEXT}\nalloc z 1 device=1"));
        let mut selection = Selection::new(&longer);
        look.apply(&longer, &mut selection);
        assert_eq!((selection.device, selection.axis()), (1, Axis::Time));
        assert_eq!(*selection.view(), selection.whole(&longer));
        let other = recording("alloc a 10");
        let mut selection = Selection::new(&other);
        look.apply(&other, &mut selection);
        assert_eq!((selection.device, selection.metric), (0, Metric::default()));
    }

    #[test]
    fn views_that_cannot_be_are_not_taken() {
        let recording = recording(TEXT);
        let mut selection = Selection::new(&recording);
        let whole = selection.view().clone();
        let events = recording.trace.events.len();
        let strange = FileStyle { events, x: Some([5.0, 1.0]), y: Some([f64::NAN, 2.0]), ..FileStyle::default() };
        strange.apply(&recording, &mut selection);
        assert_eq!(*selection.view(), whole);
        let without = Recording::new("made", None, trace_from_text(TEXT).unwrap());
        assert_eq!(FileStyle::of(&without, &Selection::new(&without), ColourBy(GroupKey::Op), Stacking::Age), None);
    }
}
