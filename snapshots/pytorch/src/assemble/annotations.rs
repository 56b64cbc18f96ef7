//! Builds the annotations of the program from their separate starts and ends.

use hashbrown::HashMap;

use highwater_snapshots::ids::{DeviceId, EventId, StringId};
use highwater_snapshots::trace::{Annotation, Events};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) name: StringId,
    pub(super) is_start: bool,
    /// Device ordinal as given in the file.
    pub(super) device: i64,
    /// Time since the recording's origin, in nanoseconds.
    pub(super) time_ns: u64,
    /// The event that recorded the mark; `NONE` for a mark that is not in the trace.
    pub(super) event: EventId,
}

/// Pairs each end with the latest open start of the same name and device, since neither end names a thread. The pairs
/// are ordered by their starts, or by their ends where the start is missing.
fn pairs(marks: &[Mark]) -> Vec<(Option<Mark>, Option<Mark>)> {
    let mut rows: Vec<(Option<Mark>, Option<Mark>)> = Vec::new();
    let mut open: HashMap<(StringId, i64), Vec<usize>> = HashMap::new();
    for &mark in marks {
        let starts = open.entry((mark.name, mark.device)).or_default();
        if mark.is_start {
            starts.push(rows.len());
            rows.push((Some(mark), None));
        } else {
            match starts.pop() {
                Some(row) => rows[row].1 = Some(mark),
                None => rows.push((None, Some(mark))),
            }
        }
    }
    rows
}

/// Returns the annotations of `marks`, in the order of [`pairs`].
pub(super) fn annotations(marks: &[Mark], events: &Events) -> Vec<Annotation> {
    let times = &events.time_ns;
    let annotation = |(start, end): (Option<Mark>, Option<Mark>)| {
        let first = start.map_or(0, |mark| match mark.event.index() {
            Some(index) => index,
            None => times.partition_point(|&time| time < mark.time_ns),
        });
        let after = end.map_or(times.len(), |mark| match mark.event.index() {
            Some(index) => index + 1,
            None => times.partition_point(|&time| time <= mark.time_ns),
        });
        let mark = start.or(end)?;
        let device = u16::try_from(mark.device).ok().filter(|ordinal| *ordinal < 255).unwrap_or(0);
        Some(Annotation {
            name: mark.name,
            device: DeviceId(device),
            start_ns: start.map(|mark| mark.time_ns),
            end_ns: end.map(|mark| mark.time_ns),
            first: EventId::from_index(first),
            end: EventId::from_index(after.max(first)),
            is_guessed: false,
        })
    };
    pairs(marks).into_iter().filter_map(annotation).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(name: u32, is_start: bool, device: i64, time_ns: u64) -> Mark {
        Mark { name: StringId(name), is_start, device, time_ns, event: EventId::NONE }
    }

    fn events(times: &[u64]) -> Events {
        Events { time_ns: times.to_vec(), ..Events::default() }
    }

    fn rows(annotations: &[Annotation]) -> Vec<(u32, u16, u32, u32)> {
        annotations.iter().map(|row| (row.name.0, row.device.0, row.first.0, row.end.0)).collect()
    }

    #[test]
    fn an_end_closes_the_latest_start_of_its_name_and_device() {
        let marks = [
            mark(1, true, 0, 10),
            mark(2, true, 0, 15),
            mark(1, true, 1, 16),
            mark(1, true, 0, 20),
            mark(1, false, 0, 30),
            mark(2, false, 0, 35),
            mark(1, false, 0, 40),
            mark(1, false, 1, 41),
        ];
        let found = annotations(&marks, &events(&[5, 10, 20, 20, 30, 31, 40, 50]));
        assert_eq!(rows(&found), [(1, 0, 1, 7), (2, 0, 2, 6), (1, 1, 2, 7), (1, 0, 2, 5)]);
        assert_eq!((found[3].start_ns, found[3].end_ns), (Some(20), Some(30)));
    }

    #[test]
    fn what_has_no_start_or_no_end_reaches_to_the_edge_of_the_recording() {
        let marks = [mark(1, false, 0, 10), mark(2, true, 0, 20)];
        let found = annotations(&marks, &events(&[5, 10, 20]));
        assert_eq!(rows(&found), [(1, 0, 0, 2), (2, 0, 2, 3)]);
        assert_eq!((found[0].start_ns, found[0].end_ns), (None, Some(10)));
        assert_eq!((found[1].start_ns, found[1].end_ns), (Some(20), None));
    }

    #[test]
    fn ranges_between_events_or_turned_round_are_empty() {
        let marks = [mark(1, true, -1, 11), mark(1, false, -1, 12), mark(2, true, 0, 30), mark(2, false, 0, 20)];
        let found = annotations(&marks, &events(&[5, 10, 20, 25, 30]));
        assert_eq!(rows(&found), [(1, 0, 2, 2), (2, 0, 4, 4)]);
    }

    #[test]
    fn marks_that_are_events_lie_within_their_range() {
        let start = Mark { event: EventId(1), ..mark(1, true, 0, 7) };
        let end = Mark { event: EventId(3), ..mark(1, false, 0, 7) };
        let found = annotations(&[start, end], &events(&[7, 7, 7, 7, 7]));
        assert_eq!(rows(&found), [(1, 0, 1, 4)]);
    }
}
