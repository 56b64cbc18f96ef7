//! Describes the differences between a recording and the expected one.

use std::collections::BTreeMap;

use highwater_snapshots::event::EventKind;
use highwater_snapshots::{DeviceId, Trace};

use crate::expected::{Bytes, Device, File, METRICS, PyTorchFigures};
use crate::found::{count, frames, series};

/// The actions that each kind of event stands for.
const KINDS: [(EventKind, &[&str]); 8] = [
    (EventKind::Alloc, &["alloc"]),
    (EventKind::FreeRequested, &["free_requested"]),
    (EventKind::FreeCompleted, &["free_completed", "free"]),
    (EventKind::SegmentAlloc, &["segment_alloc"]),
    (EventKind::SegmentFree, &["segment_free"]),
    (EventKind::SegmentMap, &["segment_map"]),
    (EventKind::SegmentUnmap, &["segment_unmap"]),
    (EventKind::Oom, &["oom"]),
];

/// Every difference between a recording and what `expected.json` says of it.
pub(crate) fn differences(trace: &Trace, expected: &File) -> Vec<String> {
    let mut wrong = Vec::new();
    for (&ordinal, device) in &expected.devices {
        device_differences(trace, ordinal, device, &mut wrong);
    }
    let known = trace.device_ids();
    let unknown = known.iter().filter(|id| {
        let totals = series(trace, id.0);
        !expected.devices.contains_key(&id.0) && totals.peak(trace, METRICS[3]).0 > 0
    });
    let unknown = unknown.count();
    if unknown != usize::from(expected.host_events > 0) {
        wrong.push(format!("{unknown} devices hold memory beside {:?}", expected.devices.keys()));
    }
    let mut annotations = BTreeMap::new();
    for annotation in trace.annotations.iter().filter(|annotation| !annotation.is_guessed) {
        *annotations.entry(trace.tables.string(annotation.name).to_owned()).or_insert(0) += 1;
    }
    if annotations != expected.annotations {
        wrong.push(format!("annotations are {annotations:?}, expected {:?}", expected.annotations));
    }
    wrong
}

fn device_differences(trace: &Trace, ordinal: u16, expected: &Device, wrong: &mut Vec<String>) {
    let device = DeviceId(ordinal);
    let events = trace.events.len();
    let counts = KINDS.map(|(kind, actions)| {
        let of_file: usize = actions.iter().filter_map(|action| expected.actions.get(*action)).sum();
        (kind, count(trace, device, kind, events), of_file)
    });
    let is_free = |kind| matches!(kind, EventKind::FreeRequested | EventKind::FreeCompleted);
    // Where no completion was recorded, a request may stand as one.
    let is_merged = counts.iter().any(|row| row.0 == EventKind::FreeCompleted && row.2 == 0);
    for (kind, found, of_file) in counts {
        if found != of_file && !(is_merged && is_free(kind)) {
            wrong.push(format!("device {ordinal} has {found} {} events, expected {of_file}", kind.name()));
        }
    }
    let frees = counts.iter().filter(|row| is_free(row.0)).fold((0, 0), |sum, row| (sum.0 + row.1, sum.1 + row.2));
    if frees.0 != frees.1 {
        wrong.push(format!("device {ordinal} has {} free events, expected {}", frees.0, frees.1));
    }
    let series = series(trace, ordinal);
    for (moment, found, expected) in
        [("begins", series.baseline(), expected.baseline), ("ends", series.end(trace), expected.end)]
    {
        let found = Bytes::of(found);
        if found != expected {
            wrong.push(format!("device {ordinal} {moment} with {found:?}, expected {expected:?}"));
        }
    }
    for metric in METRICS {
        let peak = &expected.peaks[metric.name()];
        let (bytes, event) = series.peak(trace, metric);
        if bytes != peak.bytes {
            wrong.push(format!("device {ordinal}: {metric} peaks at {bytes}, expected {}", peak.bytes));
        }
        let at = event.and_then(|event| {
            let position = event.index()?;
            let kind = trace.events.kind[position];
            Some((kind.name().to_owned(), count(trace, device, kind, position)))
        });
        let expected_at = peak.action.clone().map(|action| (action, peak.nth));
        if at != expected_at {
            wrong.push(format!("device {ordinal}: {metric} peaks at {at:?}, expected {expected_at:?}"));
        } else if let Some(event) = event {
            let found = frames(trace, event);
            let mut rest = found.iter();
            if !peak.frames.iter().all(|frame| rest.any(|line| line == frame)) {
                wrong.push(format!("device {ordinal}: the peak's stack is {found:?}, expected {:?}", peak.frames));
            }
        }
    }
}

/// Every difference between a recording and PyTorch's own counters, which know nothing of any replay.
///
/// PyTorch counts a block's request until its free is completed, so `requested` is compared only at the end, and there
/// only where no block waits.
pub(crate) fn differences_from_pytorch(trace: &Trace, expected: &PyTorchFigures) -> Vec<String> {
    let mut wrong = Vec::new();
    for (&ordinal, stats) in &expected.memory_stats {
        let series = series(trace, ordinal);
        let end = Bytes::of(series.end(trace));
        for metric in METRICS.into_iter().filter(|metric| *metric != METRICS[0] || end.active == end.allocated) {
            if end.get(metric) != stats.current.get(metric) {
                let counted = stats.current.get(metric);
                wrong
                    .push(format!("device {ordinal}: {metric} ends at {}, PyTorch counted {counted}", end.get(metric)));
            }
        }
        for metric in METRICS.into_iter().skip(1).filter(|_| expected.counted_since.is_some()) {
            let (bytes, counted) = (series.peak(trace, metric).0, stats.peak.get(metric));
            if bytes != counted {
                wrong.push(format!("device {ordinal}: {metric} peaks at {bytes}, PyTorch counted {counted}"));
            }
        }
    }
    wrong
}
