//! A full comparison of two recordings: settings, totals, phases, and groups.

use super::{Asked, Diff, PhasePair, PhasePeak, Setting, phase_pairs, settings};
use crate::metric::Metric;
use crate::question::peak::{Moment, Query};
use crate::question::phases::phases;
use crate::question::source::{Source, Watch};
use highwater_snapshots::Result;

/// A comparison of two recordings, or of two points in one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// The settings of both recordings, both equal and different.
    pub settings: Vec<Setting>,
    /// The peaks of A and B in bytes, for each metric that A or B has.
    pub totals: Vec<(Metric, [u64; 2])>,
    /// The phases of both sides, paired; empty if both are the same recording.
    pub phases: Vec<PhasePair>,
    /// The differences by group.
    pub diff: Diff,
}

impl Comparison {
    /// Compares two points with the same metric, one in each recording. The filter only affects the groups; settings,
    /// totals and phases cover the whole recordings.
    ///
    /// # Errors
    /// Fails like [`Source::each_window`].
    pub fn of(sources: [&Source<'_>; 2], moments: [Moment; 2], query: &Query<'_>, watch: Watch<'_>) -> Result<Self> {
        let [a, b] = sources;
        let [device_a, device_b] = moments.map(|moment| moment.device);
        let metric = moments[0].metric;
        let mut phases = Vec::new();
        if !std::ptr::eq(a, b) {
            let mut peaks_of = |source: &Source<'_>, device| -> Result<Vec<PhasePeak>> {
                let rows = source.stages(device, metric, &mut *watch)?;
                let rows = self::phases(source.facts(), device, metric, rows);
                Ok(rows.into_iter().map(PhasePeak::from).collect())
            };
            phases = phase_pairs(&peaks_of(a, device_a)?, &peaks_of(b, device_b)?);
        }
        let mut totals = Vec::new();
        for metric in Metric::ALL {
            let bytes = [a.peak(device_a, metric)?.bytes, b.peak(device_b, metric)?.bytes];
            totals.extend((bytes != [0, 0]).then_some((metric, bytes)));
        }
        let windows = [a.window_at(moments[0].number())?, b.window_at(moments[1].number())?];
        let indexes = [windows[0].index(device_a), windows[1].index(device_b)];
        let asked = [0, 1].map(|side| {
            let (window, index) = (&windows[side], &indexes[side]);
            Asked { trace: &window.trace, series: &index.series, live: &index.live }
        });
        Ok(Self {
            settings: settings([(a.facts(), device_a), (b.facts(), device_b)]),
            totals,
            phases,
            diff: Diff::of(asked, moments, query),
        })
    }
}
