//! Totals as recorded and as predicted. Each pixel column has its maximum, so that no peak is lost.

use std::ops::Range;

use highwater_analysis::Metric;

use super::run::PredictedRun;
use crate::gui::identity::Identity;
use crate::gui::widgets::Cancel;
use crate::{Axis, Recording, Selection};

/// The input of a curve: the totals, a range of the recording's axis, and the number of pixel columns.
#[derive(Clone, Debug)]
pub(in super::super) struct Key {
    pub(in super::super) recording: Identity<Recording>,
    pub(in super::super) run: Identity<PredictedRun>,
    pub(in super::super) drawn: [Metric; 2],
    /// The device, the axis, and the visible range of the axis.
    pub(in super::super) selection: Selection,
    pub(in super::super) columns: usize,
}

impl Key {
    fn across(&self) -> (Axis, &Range<f64>) {
        (self.selection.axis(), &self.selection.view().x)
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        (&self.run, self.drawn, self.columns) == (&other.run, other.drawn, other.columns)
            && self.across() == other.across()
    }
}

/// The maximum of each displayed total in one column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Column {
    /// The centre of the column on the axis.
    pub x: f64,
    /// The maximum of each total as recorded, in bytes.
    pub measured: [u64; 2],
    /// The maximum of each total as predicted, in bytes; `None` after a request has failed.
    pub predicted: Option<[u64; 2]>,
}

#[derive(Debug)]
pub(crate) struct Curve {
    pub columns: Vec<Column>,
}

impl Curve {
    pub(in super::super) fn of(key: &Key, cancel: &Cancel) -> Option<Self> {
        let (recording, run, selection) = (key.recording.get()?, key.run.get()?, &key.selection);
        let (trace, index) = (&recording.trace, recording.devices.get(selection.device)?);
        let (mut measured, mut predicted) = (index.series.walk(trace), run.series.walk(&run.trace));
        let (_, x) = key.across();
        let width = (x.end - x.start) / key.columns.max(1) as f64;
        let mut columns = Vec::with_capacity(key.columns);
        for column in 0..key.columns {
            if cancel.is_cancelled() {
                return None;
            }
            let start = x.start + width * column as f64;
            let first = selection.moment_at(trace, start);
            let last = moment_before(selection, &recording, start + width).max(first);
            let pick = |totals: highwater_analysis::Totals| key.drawn.map(|metric| totals.get(metric));
            let moments = run.moments(first, last);
            columns.push(Column {
                x: start + width / 2.0,
                measured: pick(measured.largest_of_each(first..last + 1)),
                predicted: moments.map(|moments| pick(predicted.largest_of_each(moments))),
            });
        }
        Some(Self { columns })
    }
}

/// The last moment that begins before `x` on the axis.
fn moment_before(selection: &Selection, recording: &Recording, x: f64) -> usize {
    let trace = &recording.trace;
    match selection.axis() {
        Axis::Event => ((x.ceil().max(1.0) as usize) - 1).min(trace.events.len()),
        Axis::Time => trace.events.time_ns.partition_point(|&time| (time as f64) < x),
    }
}
