//! The peak of each total of a device, as a table and as figures.

use std::collections::BTreeMap;

use highwater_analysis::{DeviceSummary, Metric};
use highwater_app::figures::moment::peak_facts;
use highwater_app::report::{Column, Table, Value, percent};
use highwater_snapshots::{Header, Phase, format_count};

fn meaning(metric: Metric) -> &'static str {
    match metric {
        Metric::Requested => "requested by live blocks",
        Metric::Allocated => "after rounding",
        Metric::Active => "plus awaiting free",
        Metric::Reserved => "reserved from the driver",
        Metric::DeviceUsed => "in use on the whole device",
    }
}

/// Returns a table of the peaks and final values of a device's totals. For a recording without events, returns a table
/// of the totals.
pub(crate) fn peaks_table(summary: &DeviceSummary, is_state: bool) -> Table<'_> {
    let peaks = &summary.peaks;
    let event = |row: usize| peaks[row].number().map_or_else(|| "start".to_owned(), format_count);
    let step = |row: usize| peaks[row].step.map_or_else(|| "-".to_owned(), |step| step.to_string());
    // Before the first event, there is no phase.
    let phase = |row: usize| peaks[row].event.and_then(|_| peaks[row].known_phase()).map_or("-", Phase::name);
    let of_device = if summary.capacity_bytes > 0 { "of device" } else { "" };
    let mut columns = vec![
        Column::text("total", "total", |row| peaks[row].metric.name().replace('_', " ")),
        Column::bytes("peak_bytes", if is_state { "bytes" } else { "peak" }, |row| peaks[row].bytes),
        Column::shown_alone(of_device, true, |row| percent(peaks[row].bytes, summary.capacity_bytes)).optional(),
    ];
    if !is_state {
        columns.extend([
            Column::number("peak_event", "at event", |row| peaks[row].number()).shown(event),
            Column::number("step", "step", |row| peaks[row].step).shown(step),
            Column::text("phase", "phase", phase),
            Column::bytes("end_bytes", "end", |row| summary.end.get(peaks[row].metric)),
        ]);
    }
    columns.push(
        Column::shown_alone("counted bytes", false, |row| meaning(peaks[row].metric).to_owned()).cut().optional(),
    );
    Table::new(peaks.len(), columns)
}

/// Returns the peak of each metric by its name; null if the recording has no samples of the metric.
pub(crate) fn peaks_value(header: &Header, summary: &DeviceSummary) -> Value {
    let peaks = Metric::ALL.map(|metric| {
        let peak = summary.peak(metric).map(|moment| Value::Map(peak_facts(header, moment)));
        (metric.name(), peak.into())
    });
    Value::Map(BTreeMap::from(peaks).into_iter().collect())
}
