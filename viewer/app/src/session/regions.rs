//! Ranges named by the program or recognized from call stacks, laid out in rows without overlap, marks, and failed
//! requests.

use std::ops::Range;

use highwater_snapshots::{DeviceId, EventKind, StringId, Trace};

/// Maximum number of rows; regions that are nested more deeply are only counted.
const MAX_ROWS: usize = 3;

/// A named range of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// The name, as given by the program or derived from call stacks.
    pub name: StringId,
    /// The range of the region's events.
    pub events: Range<u32>,
}

/// Named ranges, marks and failed requests of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Regions {
    /// Rows of regions, outer regions first. The regions of a row are in order and do not overlap.
    pub rows: Vec<Vec<Region>>,
    /// Number of regions without a row.
    pub left_out: usize,
    /// Marks: the number of events before each, and its text.
    pub notes: Vec<(usize, StringId)>,
    /// Failed requests: the device, and the number of events up to and including each.
    pub ooms: Vec<(DeviceId, usize)>,
}

impl Regions {
    /// Lays out the annotations of `trace`, but not `steps`, guessed phases and tags, which have separate lanes.
    pub fn of(trace: &Trace, steps: &[(u32, Range<u32>)]) -> Self {
        let mut regions = Self::default();
        for annotation in &trace.annotations {
            let events = annotation.first.0..annotation.end.0.min(trace.events.len() as u32);
            let at = steps.partition_point(|(_, step)| step.start < events.start);
            let is_step = steps.get(at).is_some_and(|(_, step)| *step == events);
            let is_stage = annotation.is_guessed && trace.names_step_or_phase(annotation.name);
            if is_stage || is_step || trace.is_tag(annotation.name) || events.start >= events.end {
                continue;
            }
            // Annotations are in the order of their first events, outer before inner ones.
            let is_free = |row: &Vec<Region>| row.last().is_none_or(|last| last.events.end <= events.start);
            let row = regions.rows.iter().position(is_free).unwrap_or(regions.rows.len());
            let region = Region { name: annotation.name, events };
            match regions.rows.get_mut(row) {
                Some(row) => row.push(region),
                None if row < MAX_ROWS => regions.rows.push(vec![region]),
                None => regions.left_out += 1,
            }
        }
        for (index, kind) in trace.events.kind.iter().enumerate() {
            match kind {
                EventKind::Oom => regions.ooms.push((trace.events.device[index], index + 1)),
                EventKind::Mark => regions.notes.push((index + 1, StringId(trace.events.subject[index]))),
                _ => {}
            }
        }
        regions
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_notation::trace_from_text;
    use highwater_snapshots::trace::Annotation;
    use highwater_snapshots::{EventId, StringId};

    #[test]
    fn regions_take_the_first_row_that_is_free_and_steps_have_their_own_lane() {
        let region = |name, first, end| Annotation {
            name: StringId(name),
            device: DeviceId(0),
            start_ns: None,
            end_ns: None,
            first: EventId(first),
            end: EventId(end),
            is_guessed: false,
        };
        let text = "alloc a 1\nalloc b 1\nmark here\nalloc c 1\nalloc d 1\nalloc e 1";
        let trace = trace_from_text(text).unwrap().edited(|trace| {
            trace.tables.strings.resize(8, String::new());
            (trace.tables.strings[5], trace.tables.strings[7]) = ("forward".to_owned(), "graph capture".to_owned());
            trace.annotations = vec![
                region(0, 0, 6),
                region(1, 0, 3),
                region(2, 1, 2),
                region(3, 1, 2),
                region(4, 3, 99),
                Annotation { is_guessed: true, ..region(5, 3, 4) },
                Annotation { is_guessed: true, ..region(7, 3, 4) },
                region(6, 4, 4),
            ];
        });
        let regions = Regions::of(&trace, &[(0, 0..6)]);
        let names: Vec<Vec<u32>> =
            regions.rows.iter().map(|row| row.iter().map(|region| region.name.0).collect()).collect();
        assert_eq!(names, [vec![1, 4], vec![2, 7], vec![3]], "phases are not regions, what an engine does is");
        assert_eq!(regions.rows[0][1].events, 3..6, "what ends after the recording ends with it");
        assert_eq!(regions.left_out, 0);
        let notes: Vec<(usize, &str)> =
            regions.notes.iter().map(|(at, text)| (*at, trace.tables.string(*text))).collect();
        assert_eq!(notes, [(3, "here")]);
    }
}
