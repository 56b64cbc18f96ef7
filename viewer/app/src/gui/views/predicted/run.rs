//! A predicted recording whose events are mapped to those of the recorded one.

use std::ops::Range;
use std::sync::Arc;

use highwater_analysis::{Metric, Moment, Series, Totals};
use highwater_snapshots::{DeviceId, EventId, Trace};

/// A predicted recording of one device, and the recorded events that correspond to its events.
#[derive(Debug)]
pub(crate) struct PredictedRun {
    pub(super) trace: Arc<Trace>,
    /// The recorded event that corresponds to each event of the prediction; non-decreasing.
    source: Vec<EventId>,
    /// The recorded event of the failed request at which the prediction ends.
    failure: Option<EventId>,
    /// The index of the recording's first event, if the recording is a part of a longer one.
    first: u64,
    pub(super) series: Series,
    /// The peak of each total, at a predicted event.
    peaks: [Moment; Metric::ALL.len()],
}

impl PredictedRun {
    /// Indexes the predicted `trace`. `source` has the recorded event of each predicted one, and `failure` is the
    /// recorded event of the request that fails, if any.
    pub(crate) fn of(trace: Arc<Trace>, source: Vec<EventId>, device: DeviceId, failure: Option<EventId>) -> Self {
        let series = Series::build(&trace, device);
        let peaks = Metric::ALL.map(|metric| {
            let (_, event) = series.peak(&trace, metric);
            Moment::at(&trace, &series, metric, event)
        });
        Self { trace, source, failure, first: 0, series, peaks }
    }

    /// Sets the index of the recording's first event, if the recording is a part of a longer one.
    pub(crate) fn from(self, first: u64) -> Self {
        Self { first, ..self }
    }

    pub(crate) fn trace(&self) -> &Arc<Trace> {
        &self.trace
    }

    pub(crate) fn events(&self) -> usize {
        self.trace.events.len()
    }

    /// The peak of `metric`, at a recorded event.
    pub(crate) fn peak(&self, metric: Metric) -> Moment {
        let known = self.peaks.iter().find(|peak| peak.metric == metric);
        self.renumbered(known.unwrap_or(&self.peaks[0]))
    }

    /// Replaces the predicted event in a moment by the corresponding recorded event.
    pub(crate) fn renumbered(&self, moment: &Moment) -> Moment {
        let recorded = |event: EventId| self.source.get(event.index()?).copied();
        Moment { event: moment.event.and_then(recorded), events_before: self.first, ..*moment }
    }

    /// Number of predicted events before the recorded `moment`.
    fn position(&self, moment: usize) -> usize {
        self.source.partition_point(|event| (event.0 as usize) < moment)
    }

    /// The recorded moment directly after the request that fails in the prediction; `None` if none fails.
    pub(crate) fn end(&self) -> Option<usize> {
        self.failure.map(|event| event.0 as usize + 1)
    }

    pub(super) fn fails(&self) -> bool {
        self.failure.is_some()
    }

    /// Returns the predicted moments during the recorded moments `first..=last`; `None` after the prediction's end.
    pub(super) fn moments(&self, first: usize, last: usize) -> Option<Range<usize>> {
        if self.end().is_some_and(|end| first > end) {
            return None;
        }
        let end = self.position(last);
        // The events made from one recorded event have intermediate states.
        let start = first.checked_sub(1).map_or(0, |before| self.position(before) + 1);
        Some(start.min(end)..end + 1)
    }

    /// Returns the predicted totals at the recorded `moment`; `None` after the end of the prediction.
    pub(crate) fn totals(&self, moment: usize) -> Option<Totals> {
        let moments = self.moments(moment, moment)?;
        Some(self.series.before_position(&self.trace, moments.end - 1))
    }
}
