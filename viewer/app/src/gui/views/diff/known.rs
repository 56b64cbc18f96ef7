//! Caches the moments and the alignment of a comparison, so that they are not computed in every frame.

use std::sync::Arc;

use highwater_analysis::diff::DiffAt;
use highwater_analysis::{Metric, Moment};

use super::alignment::{Align, Alignment};
use super::job::find;
use crate::gui::identity::Identity;
use crate::gui::widgets::memo::Memo;
use crate::selection::{Axis, Selection};
use crate::session::Recording;

/// The compared moments; otherwise why one does not exist.
pub(super) type Moments = Result<[Moment; 2], String>;

/// The recordings and devices of the cached values.
#[derive(Clone, Debug, PartialEq)]
struct Of {
    recordings: [Identity<Recording>; 2],
    devices: [usize; 2],
}

impl Of {
    fn new(recordings: [&Arc<Recording>; 2], selections: [&Selection; 2]) -> Self {
        Self { recordings: recordings.map(Identity::of), devices: selections.map(|selection| selection.device) }
    }
}

/// The key of an alignment: the recordings, and the compared moments.
type AlignmentKey = (Of, Option<[Moment; 2]>, Align, Axis);

/// Values that stay the same from frame to frame.
#[derive(Debug, Default)]
pub(super) struct Known {
    moments: Memo<(Of, [DiffAt; 2], Metric), Moments>,
    alignment: Memo<AlignmentKey, Arc<Alignment>>,
}

impl Known {
    /// The moments `at` of both.
    pub(super) fn moments(
        &mut self,
        recordings: [&Arc<Recording>; 2],
        selections: [&Selection; 2],
        (at, metric): ([DiffAt; 2], Metric),
    ) -> Moments {
        let one = |side: usize| find(recordings[side], selections[side].device, (at[side], metric), ["A", "B"][side]);
        let key = (Of::new(recordings, selections), at, metric);
        self.moments.get(key, |_| one(0).and_then(|a| Ok([a, one(1)?]))).clone()
    }

    /// The alignment of both.
    pub(super) fn alignment(
        &mut self,
        recordings: [&Arc<Recording>; 2],
        selections: [&Selection; 2],
        moments: Option<[Moment; 2]>,
        align: Align,
    ) -> Arc<Alignment> {
        let key = (Of::new(recordings, selections), moments, align, selections[0].axis());
        let at = moments.as_ref().map_or(&[][..], |moments| moments);
        let make = |_: &_| Arc::new(Alignment::of(recordings.map(|recording| &**recording), selections, at, align));
        Arc::clone(self.alignment.get(key, make))
    }
}
