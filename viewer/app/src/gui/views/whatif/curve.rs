//! Totals as recorded and as predicted; each pixel column keeps its maximum, so that no peak is lost.

use std::ops::Range;
use std::sync::{Arc, Weak};

use highwater_analysis::Metric;

use super::job::Replayed;
use crate::gui::widgets::worker::Cancel;
use crate::selection::{Axis, Selection};
use crate::session::Recording;

/// The totals that are drawn.
pub(super) const DRAWN: [Metric; 2] = [Metric::Allocated, Metric::Reserved];

/// The input of a curve: a range of the recording's axis, and the number of pixel columns.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) of: Weak<Replayed>,
    pub(super) axis: Axis,
    pub(super) x: Range<f64>,
    pub(super) columns: usize,
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        Weak::ptr_eq(&self.of, &other.of) && (self.axis, &self.x, self.columns) == (other.axis, &other.x, other.columns)
    }
}

/// A question.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) recording: Arc<Recording>,
    pub(super) replayed: Arc<Replayed>,
    pub(super) selection: Selection,
    pub(super) key: Key,
}

/// The maximum of each drawn total in one column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Column {
    /// The centre on the axis.
    pub(super) x: f64,
    pub(super) measured: [u64; 2],
    /// `None` after a request has failed.
    pub(super) predicted: Option<[u64; 2]>,
}

/// The columns of a range of the axis.
#[derive(Debug)]
pub(super) struct Curve {
    pub(super) key: Key,
    pub(super) columns: Vec<Column>,
}

impl Curve {
    /// Computes the columns; `None` if cancelled.
    pub(super) fn of(asked: Asked, cancel: &Cancel) -> Option<Self> {
        let Asked { recording, replayed, selection, key } = asked;
        let (trace, index) = (&recording.trace, recording.devices.get(selection.device)?);
        let other = replayed.other()?;
        let (mut measured, mut predicted) = (index.series.walk(trace), other.series.walk(&other.changed.trace));
        let width = (key.x.end - key.x.start) / key.columns.max(1) as f64;
        let mut columns = Vec::with_capacity(key.columns);
        for column in 0..key.columns {
            if cancel.is_cancelled() {
                return None;
            }
            let start = key.x.start + width * column as f64;
            let first = selection.moment_at(trace, start);
            let last = moment_before(&selection, &recording, start + width).max(first);
            let pick = |totals: highwater_analysis::Totals| DRAWN.map(|metric| totals.get(metric));
            let moments = other.moments(first, last);
            columns.push(Column {
                x: start + width / 2.0,
                measured: pick(measured.largest_of_each(first..last + 1)),
                predicted: moments.map(|moments| pick(predicted.largest_of_each(moments))),
            });
        }
        Some(Self { key, columns })
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
