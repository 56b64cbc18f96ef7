//! Maps the events of a changed run to the corresponding events of the original recording.

use highwater_snapshots::trace::Span;
use highwater_snapshots::{EventId, Trace};

/// Returns, for each event of `run`, the event of `recorded` at the same relative position within the same phase of the
/// same step. Events of phases that `recorded` lacks are mapped to its last preceding event. The result is
/// non-decreasing.
pub fn aligned(recorded: &Trace, run: &Trace) -> Vec<EventId> {
    let end = recorded.events.len().saturating_sub(1);
    let spans = recorded.spans.rows();
    let (mut source, mut next, mut last) = (Vec::with_capacity(run.events.len()), 0, 0);
    for span in run.spans.rows() {
        let is_same = |other: &Span| (other.step, other.phase) == (span.step, span.phase);
        let found = spans[next..].iter().position(is_same).map(|place| next + place);
        let rows = span.first.0 as usize..(span.end.0 as usize).min(run.events.len());
        let count = rows.len();
        for row in 0..count {
            let at = found.map_or(last, |found| {
                let (first, length) =
                    (spans[found].first.0 as usize, (spans[found].end.0 - spans[found].first.0) as usize);
                // The recording's last phase may be cut short by its end.
                let within = if found + 1 == spans.len() { row } else { row * length / count };
                first + within.min(length.saturating_sub(1))
            });
            last = at.clamp(last, end.max(last));
            source.push(EventId::from_index(last.min(end)));
        }
        next = found.map_or(next, |found| found + 1);
    }
    source.resize(run.events.len(), EventId::from_index(last.min(end)));
    source
}

#[cfg(test)]
mod tests {
    use highwater_notation::trace_from_text;

    use super::*;

    fn of(recorded: &str, run: &str) -> Vec<u32> {
        let [recorded, run] = [recorded, run].map(|text| trace_from_text(text).unwrap());
        aligned(&recorded, &run).into_iter().map(|event| event.0).collect()
    }

    #[test]
    fn a_run_follows_a_recording_to_its_end_and_stays_there() {
        let forward = "step 0\nphase forward\nalloc a 10\nalloc b 10\n";
        let whole = format!("{forward}phase backward\nfree b\nfree a\nphase optimizer\nalloc s 10\n");
        let same = of(&whole, &whole);
        assert!(same.is_sorted() && same.iter().zip(0..).all(|(event, row)| event.abs_diff(row) <= 1), "{same:?}");
        let cut = of(forward, &whole);
        assert!(cut.is_sorted() && cut.last() == Some(&3) && cut.len() == same.len(), "{cut:?}");
        assert!(of("", &whole).iter().all(|event| *event == 0));
    }
}
