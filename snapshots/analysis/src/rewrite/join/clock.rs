//! Aligns recordings on a common time axis, and finds gaps between them.

use super::JoinPart;
use highwater_snapshots::units::format_duration;

/// The offsets of the recordings on the common axis.
#[derive(Debug)]
pub(super) struct Clock {
    /// The start of the axis, in microseconds since 1970. If no recording has a start time, the smallest offset, or 0
    /// if that is negative.
    pub(super) origin_unix_us: u64,
    /// Offset added to the times of each recording, in nanoseconds.
    pub(super) shifts_ns: Vec<u64>,
    pub(super) warnings: Vec<String>,
}

impl Clock {
    pub(super) fn of(parts: &[JoinPart<'_>]) -> Self {
        let known = |part: &JoinPart<'_>| Some(part.trace.header.started_unix_us).filter(|started| *started > 0);
        let first_known = parts.iter().find_map(|part| Some((part.name, known(part)?)));
        let mut warnings = Vec::new();
        let mut starts = Vec::with_capacity(parts.len());
        for part in parts {
            let started_us = known(part).unwrap_or_else(|| {
                if let Some((name, _)) = first_known {
                    let what = "has no start time and is placed at the start of";
                    warnings.push(format!("{} {what} {name}; use --offset to move it", part.name));
                }
                first_known.map_or(0, |(_, started)| started)
            });
            starts.push(i128::from(started_us) * 1000 + i128::from(part.offset_ns));
        }
        let origin_us = starts.iter().copied().min().unwrap_or(0).div_euclid(1000);
        let shifts_ns =
            starts.iter().map(|start| u64::try_from(start - origin_us * 1000).unwrap_or(u64::MAX)).collect();
        warnings.extend(gaps(parts, &starts));
        Self { origin_unix_us: u64::try_from(origin_us).unwrap_or(0), shifts_ns, warnings }
    }
}

/// Returns a warning for each period between two recordings that neither covers.
fn gaps(parts: &[JoinPart<'_>], starts: &[i128]) -> Vec<String> {
    let mut ranges: Vec<(i128, i128, &str)> = parts
        .iter()
        .zip(starts)
        .filter_map(|(part, start)| {
            let times = &part.trace.events.time_ns;
            let (first, last) = (times.iter().min()?, times.iter().max()?);
            Some((start + i128::from(*first), start + i128::from(*last), part.name))
        })
        .collect();
    ranges.sort_by_key(|range| (range.0, range.1));
    let mut warnings = Vec::new();
    let mut reach: Option<(i128, &str)> = None;
    for (first, last, name) in ranges {
        if let Some((end, before)) = reach.filter(|(end, _)| first > *end) {
            let gap = format_duration(u64::try_from(first - end).unwrap_or(u64::MAX));
            warnings.push(format!(
                "{name} begins {gap} after {before} ends: they do not overlap in time; use --offset if the clocks differ"
            ));
        }
        if reach.is_none_or(|(end, _)| last > end) {
            reach = Some((last, name));
        }
    }
    warnings
}
