//! The peak of each of a device's totals, as a table and as figures.

use std::collections::BTreeMap;

use highwater_analysis::summary::DeviceSummary;
use highwater_analysis::{Metric, Moment};
use highwater_app::figures::moment::PeakFigure;
use highwater_snapshots::units::{format_bytes, format_count};
use highwater_snapshots::{Phase, Trace};

use crate::cli::output::table::{Column, Table, percent};

/// Describes what a metric counts.
fn meaning(metric: Metric) -> &'static str {
    match metric {
        Metric::Requested => "requested by live blocks",
        Metric::Allocated => "after rounding",
        Metric::Active => "plus waiting for a stream",
        Metric::Reserved => "reserved from the driver",
        Metric::DeviceUsed => "in use on the whole device",
    }
}

/// Returns the phase of `moment`; `None` before the first event, or if the recording has no phases.
fn known_phase(moment: &Moment) -> Option<Phase> {
    moment.event.and_then(|_| moment.known_phase())
}

/// Returns the peaks of a device's totals, and their values at the end, as a table.
pub fn peaks_table(summary: &DeviceSummary) -> Table {
    let has_capacity = summary.capacity_bytes > 0;
    let mut table = Table::new(vec![
        Column::text("total"),
        Column::number("peak"),
        Column::number(if has_capacity { "of device" } else { "" }).optional(),
        Column::number("at event"),
        Column::number("step"),
        Column::text("phase"),
        Column::number("end"),
        Column::text("what it counts").cut().optional(),
    ]);
    for moment in &summary.peaks {
        table.push(vec![
            moment.metric.name().replace('_', " "),
            format_bytes(moment.bytes),
            percent(moment.bytes, summary.capacity_bytes),
            moment.number().map_or_else(|| "start".to_owned(), format_count),
            moment.step.map_or_else(|| "-".to_owned(), |step| step.to_string()),
            known_phase(moment).map_or_else(|| "-".to_owned(), |phase| phase.to_string()),
            format_bytes(summary.end.get(moment.metric)),
            meaning(moment.metric).to_owned(),
        ]);
    }
    table
}

/// Returns the totals of a recording without events, as a table.
pub fn state_table(summary: &DeviceSummary) -> Table {
    let mut table = Table::new(vec![
        Column::text("total"),
        Column::number("bytes"),
        Column::number(if summary.capacity_bytes > 0 { "of device" } else { "" }).optional(),
        Column::text("what it counts").cut().optional(),
    ]);
    for moment in &summary.peaks {
        table.push(vec![
            moment.metric.name().replace('_', " "),
            format_bytes(moment.bytes),
            percent(moment.bytes, summary.capacity_bytes),
            meaning(moment.metric).to_owned(),
        ]);
    }
    table
}

/// Returns the peak of each metric by its name; `None` if the recording has no samples of it.
pub fn peak_figures(trace: &Trace, summary: &DeviceSummary) -> BTreeMap<&'static str, Option<PeakFigure>> {
    let peak = |metric: Metric| summary.peaks.iter().find(|moment| moment.metric == metric);
    Metric::ALL.map(|metric| (metric.name(), peak(metric).map(|moment| PeakFigure::of(trace, moment)))).into()
}
