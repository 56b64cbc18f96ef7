//! Converts a trace's steps, phases, marks and annotations to the starts and ends of PyTorch's `external_annotations`.

use std::collections::HashSet;

use highwater_snapshots::category::Phase;
use highwater_snapshots::event::EventKind;
use highwater_snapshots::ids::{DeviceId, EventId, StringId};
use highwater_snapshots::trace::{Owner, Span, Subject, Trace};

#[derive(Clone, Copy, Debug)]
struct Region {
    name: RegionName,
    device: DeviceId,
    start_us: Option<u64>,
    end_us: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RegionName {
    /// A training step, named as in torch.profiler.
    Step(u32),
    Phase(Phase),
    /// A name chosen by the program.
    Text(StringId),
}

impl RegionName {
    pub(super) fn text(self, trace: &Trace) -> String {
        match self {
            Self::Step(step) => format!("ProfilerStep#{step}"),
            Self::Phase(phase) => phase.name().to_owned(),
            Self::Text(id) => trace.tables.string(id).to_owned(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RegionEnd {
    pub(super) name: RegionName,
    /// Device that was current.
    pub(super) device: DeviceId,
    pub(super) is_start: bool,
    /// Time in microseconds since 1970.
    pub(super) time_us: u64,
}

/// Returns the beginnings and ends of all regions in order of time, properly nested where times are equal. Omits
/// guessed annotations. Steps and phases belong to the device `home`.
pub(super) fn ends(trace: &Trace, home: DeviceId) -> Vec<RegionEnd> {
    let unix = |time_ns: u64| trace.header.started_unix_us.saturating_add(time_ns / 1000);
    let recorded = trace.annotations.iter().filter(|annotation| !annotation.is_guessed);
    let mut regions: Vec<Region> = recorded
        .map(|annotation| Region {
            name: RegionName::Text(annotation.name),
            device: annotation.device,
            start_us: annotation.start_ns.map(unix),
            end_us: annotation.end_ns.map(unix),
        })
        .collect();
    // The steps of a trace may have been derived from its annotations.
    let known: HashSet<(String, Option<u64>)> =
        regions.iter().map(|region| (region.name.text(trace), region.start_us)).collect();
    regions.extend(marks(trace, home, unix));
    let own = own_regions(trace, home, unix);
    regions.extend(own.into_iter().filter(|region| !known.contains(&(region.name.text(trace), region.start_us))));

    let mut ends: Vec<((u64, u8, u64, i64), RegionEnd)> = Vec::with_capacity(2 * regions.len());
    for (row, region) in regions.iter().enumerate() {
        let (row, Region { name, device, start_us, end_us, .. }) = (row as i64, *region);
        if let Some(time_us) = start_us {
            // Of regions that start together, the longest comes first.
            let key = (time_us, 1, u64::MAX - end_us.unwrap_or(u64::MAX), 2 * row);
            ends.push((key, RegionEnd { name, device, is_start: true, time_us }));
        }
        if let Some(time_us) = end_us {
            let key = match start_us {
                Some(start) if start >= time_us => (time_us, 1, u64::MAX - time_us, 2 * row + 1),
                // Of regions that end together, the one that started last comes first.
                start => (time_us, 0, u64::MAX - start.unwrap_or(0), -row),
            };
            ends.push((key, RegionEnd { name, device, is_start: false, time_us }));
        }
    }
    ends.sort_by_key(|(key, _)| *key);
    ends.into_iter().map(|(_, end)| end).collect()
}

/// Returns marks as regions of zero length, except marks that represent an event of an imported snapshot.
fn marks(trace: &Trace, home: DeviceId, unix: impl Fn(u64) -> u64) -> Vec<Region> {
    let is_event = |event: EventId| {
        let known = |name| matches!(name, "action" | "addr" | "size");
        trace.attributes_of(Owner::Event(event)).iter().any(|attribute| known(trace.tables.string(attribute.name)))
    };
    let mark = |event: EventId| match trace.subject(event) {
        Subject::Mark(text) if !is_event(event) => {
            let device = trace.events.device[event.0 as usize];
            let device = if device == DeviceId(0) { home } else { device };
            let at = trace.events.time_of(event).map(&unix);
            Some(Region { name: RegionName::Text(text), device, start_us: at, end_us: at })
        }
        _ => None,
    };
    let is_mark = |event: &EventId| trace.events.kind[event.0 as usize] == EventKind::Mark;
    trace.events.ids().filter(is_mark).filter_map(mark).collect()
}

fn own_regions(trace: &Trace, device: DeviceId, unix: impl Fn(u64) -> u64) -> Vec<Region> {
    let spans = trace.spans.rows();
    let time_us = |event: EventId| {
        let last = trace.events.len().checked_sub(1).map(EventId::from_index);
        trace.events.time_of(event).or_else(|| trace.events.time_of(last?)).map(&unix)
    };
    let region = |name, first: &Span, last: &Span| {
        let (start_us, end_us) = (time_us(first.first), time_us(last.end));
        Region { name, device, start_us, end_us: end_us.max(start_us) }
    };
    let mut regions = Vec::new();
    for run in spans.chunk_by(|a, b| a.step == b.step) {
        let [first, ..] = run else { continue };
        if let Some(step) = first.step {
            regions.push(region(RegionName::Step(step), first, run.last().unwrap_or(first)));
        }
        // Everything before the first step or phase counts as setup, even if the program has no phases.
        let says_something =
            |span: &&Span| span.phase != Phase::Other && (span.phase != Phase::Setup || spans.len() > 1);
        regions.extend(run.iter().filter(says_something).map(|span| region(RegionName::Phase(span.phase), span, span)));
    }
    regions
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_notation::trace_from_text;
    use highwater_snapshots::trace::Annotation;

    fn described(trace: &Trace) -> Vec<String> {
        let text = |end: &RegionEnd| {
            let stage = if end.is_start { "START" } else { "END" };
            format!("{} {stage} {}", end.time_us, end.name.text(trace))
        };
        ends(trace, DeviceId(0)).iter().map(text).collect()
    }

    #[test]
    fn steps_and_phases_begin_and_end_nested() {
        let text =
            "alloc w 1\nstep 0\nphase forward\nalloc a 1\nphase backward\nfree a\nstep 1\nphase forward\nalloc b 1";
        let expected = [
            "1 START setup",
            "2 END setup",
            "2 START ProfilerStep#0",
            "3 START forward",
            "5 END forward",
            "5 START backward",
            "8 END backward",
            "8 END ProfilerStep#0",
            "8 START ProfilerStep#1",
            "9 START forward",
            "10 END forward",
            "10 END ProfilerStep#1",
        ];
        assert_eq!(described(&trace_from_text(text).unwrap()), expected);
        assert!(described(&trace_from_text("alloc a 1").unwrap()).is_empty());
    }

    #[test]
    fn what_the_program_stated_is_kept_and_what_was_guessed_is_not() {
        let trace = trace_from_text("alloc a 1\nmark load\nmark ProfilerStep#0\nstep 0\nalloc b 1").unwrap();
        let annotation = |name, start_ns, end_ns, is_guessed| {
            let (first, end, device) = (EventId(0), EventId(1), DeviceId(0));
            Annotation { name: StringId(name), device, start_ns, end_ns, first, end, is_guessed }
        };
        let annotations = vec![
            annotation(0, None, Some(3_000), false),
            annotation(0, Some(3_000), Some(3_000), false),
            annotation(1, Some(4_000), Some(5_000), false),
            annotation(0, Some(1_000), Some(2_000), true),
        ];
        let trace = trace.edited(|trace| trace.annotations = annotations);
        let named: Vec<String> = described(&trace).into_iter().filter(|text| !text.ends_with("setup")).collect();
        let marks = ["2 START load", "2 END load", "3 START ProfilerStep#0", "3 END ProfilerStep#0"];
        let ranges = ["3 END load", "3 START load", "3 END load", "4 START ProfilerStep#0", "5 END ProfilerStep#0"];
        assert_eq!(named, [&marks[..2], &ranges[..3], &marks[2..], &ranges[3..]].concat(), "no step is written twice");
    }
}
