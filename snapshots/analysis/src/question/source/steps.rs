//! Finds steps by the summaries of a recording, reading only events among which a step may begin or end.

use std::ops::{ControlFlow, Range};

use highwater_snapshots::event::Event;
use highwater_snapshots::format::{Summary, Windows};
use highwater_snapshots::ids::EventId;
use highwater_snapshots::stage::Stage;
use highwater_snapshots::{Error, Result};

use super::{Kind, Source, Watch};

/// Maximum number of summary rows whose events are read at a time.
const MAX_ROWS: usize = 64;

/// The step to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SoughtStep {
    /// The first step that begins at this event or later.
    After(u64),
    /// The last step that begins before this event.
    Before(u64),
    /// The step with this number. Numbers repeat if a run was restarted: this is the first such step that begins at
    /// event `from` or later, or otherwise the first in the recording.
    Number {
        /// The step number.
        number: u32,
        /// The index of the event from which to search.
        from: u64,
    },
}

/// A step that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundStep {
    /// The step's number.
    pub number: u32,
    /// The indices of its events in the whole recording.
    pub events: Range<u64>,
}

impl Source<'_> {
    /// The range of events from the first to the last of step `number`; `None` if there is no such step.
    ///
    /// # Errors
    /// Fails like [`Self::find_step`].
    pub fn step_range(&self, number: u32) -> Result<Option<Range<u64>>> {
        match &self.kind {
            Kind::InMemory(memory) => {
                let number_of = |event| memory.trace.number(EventId(event));
                let events = memory.trace.spans.step_range(number);
                Ok(events.map(|events| number_of(events.start)..number_of(events.end)))
            }
            Kind::File(file) => {
                let sought = SoughtStep::Number { number, from: 0 };
                let found = find_step(&file.windows, sought, &mut |_| ControlFlow::Continue(()))?;
                Ok(found.map(|found| found.events))
            }
        }
    }

    /// Finds a step in a file; `None` if there is no such step. `watch` receives the number of events read up to now.
    /// Also returns `None` for a recording in memory, for which [`Trace::spans`](highwater_snapshots::Trace) contains
    /// the steps.
    ///
    /// # Errors
    /// Fails if events cannot be read. Returns [`Error::Cancelled`] if `watch` breaks.
    pub fn find_step(&self, sought: SoughtStep, watch: Watch<'_>) -> Result<Option<FoundStep>> {
        match &self.kind {
            Kind::InMemory(_) => Ok(None),
            Kind::File(file) => find_step(&file.windows, sought, watch),
        }
    }
}

fn find_step(windows: &Windows, sought: SoughtStep, watch: Watch<'_>) -> Result<Option<FoundStep>> {
    let mut finder = Finder { windows, rows: windows.summaries(), read: 0, watch };
    let count = finder.rows.len();
    let first = match sought {
        SoughtStep::After(from) => {
            let rows = finder.row_of(from)..count;
            finder.forward(rows, |finder, row| finder.begins(row) > 0, |event, _| event >= from)?
        }
        SoughtStep::Before(end) => finder.backward(end)?,
        SoughtStep::Number { number, from } => {
            let middle = finder.row_of(from);
            let may_begin = |finder: &Finder<'_, '_>, row: usize| finder.may_begin(row, number);
            let later = finder.forward(middle..count, may_begin, |event, step| step == number && event >= from)?;
            match later {
                Some(later) => Some(later),
                None => finder.forward(0..count.min(middle + 1), may_begin, |_, step| step == number)?,
            }
        }
    };
    first.map(|(first, number)| Ok(FoundStep { number, events: first..finder.end_of(first, number)? })).transpose()
}

struct Finder<'w, 'f> {
    windows: &'w Windows,
    rows: &'w [Summary],
    /// Number of events read so far.
    read: u64,
    watch: Watch<'f>,
}

impl Finder<'_, '_> {
    /// Returns the index of the summary row that contains `event`; the last row if the event is past the end.
    fn row_of(&self, event: u64) -> usize {
        self.rows.partition_point(|row| row.first <= event).saturating_sub(1)
    }

    /// Number of steps that begin within a row, including repeated step numbers.
    fn begins(&self, row: usize) -> u32 {
        self.rows[row].steps.saturating_add(self.rows[row].repeated_steps)
    }

    /// Step and phase before the first event of a row.
    fn stage_before(&self, row: usize) -> Stage {
        row.checked_sub(1).map_or_else(Stage::default, |before| self.rows[before].stage)
    }

    /// Whether step `number` may begin among the events of a row.
    fn may_begin(&self, row: usize, number: u32) -> bool {
        let before = row.checked_sub(1).and_then(|before| self.rows[before].largest_step);
        let summary = &self.rows[row];
        let is_new = summary.steps > 0 && before.is_none_or(|largest| number > largest);
        let is_repeated = summary.repeated_steps > 0;
        let is_known = summary.largest_step.is_some_and(|largest| number <= largest);
        // Of a single step, the stage after the row has the number, unless setup follows it.
        let may_be_it = self.begins(row) > 1 || summary.stage.step.is_none_or(|step| step == number);
        (is_new || is_repeated) && is_known && may_be_it
    }

    /// Passes each event of `rows` at which the step changes to `take`, with the new step.
    fn changes(
        &mut self,
        rows: Range<usize>,
        take: &mut (dyn FnMut(u64, Option<u32>) -> ControlFlow<()> + Send),
    ) -> Result<()> {
        let Some(last) = self.rows[rows.clone()].last() else { return Ok(()) };
        let events = self.rows[rows.start].first..last.first + u64::from(last.events);
        let mut stage = self.stage_before(rows.start);
        let mut pass = |first: u64, run: &[Event]| {
            for (event, number) in run.iter().zip(first..) {
                let next = stage.after(&event.what, number);
                if next.step != stage.step && take(number, next.step).is_break() {
                    return ControlFlow::Break(());
                }
                stage = next;
            }
            ControlFlow::Continue(())
        };
        self.windows.read(events.clone(), &mut pass)?;
        self.read += events.end - events.start;
        if (self.watch)(self.read).is_break() { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// Returns the first step in `rows` whose beginning satisfies `is_sought`, and its first event. Reads only the rows
    /// for which `may_begin` is true.
    fn forward(
        &mut self,
        rows: Range<usize>,
        may_begin: impl Fn(&Self, usize) -> bool,
        is_sought: impl Fn(u64, u32) -> bool + Sync,
    ) -> Result<Option<(u64, u32)>> {
        let mut next = rows.start;
        while let Some(first) = (next..rows.end).find(|row| may_begin(self, *row)) {
            let end = (first + 1..rows.end.min(first + MAX_ROWS)).find(|row| !may_begin(self, *row));
            next = end.unwrap_or(rows.end.min(first + MAX_ROWS));
            let mut found = None;
            let mut take = |event, step: Option<u32>| {
                found = step.filter(|step| is_sought(event, *step)).map(|step| (event, step));
                if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            self.changes(first..next, &mut take)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Returns the last step that begins before event `end`, and its first event.
    fn backward(&mut self, end: u64) -> Result<Option<(u64, u32)>> {
        let rows = 0..self.rows.len().min(self.row_of(end) + 1);
        for row in rows.rev() {
            if self.begins(row) == 0 {
                continue;
            }
            let mut found = None;
            let mut take = |event, step: Option<u32>| {
                if event >= end {
                    return ControlFlow::Break(());
                }
                found = step.map(|step| (event, step)).or(found);
                ControlFlow::Continue(())
            };
            self.changes(row..row + 1, &mut take)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Returns one past the last event of step `number`, whose first event is `first`.
    fn end_of(&mut self, first: u64, number: u32) -> Result<u64> {
        for row in self.row_of(first)..self.rows.len() {
            if self.begins(row) == 0 && self.rows[row].stage.step == Some(number) {
                continue;
            }
            let mut end = None;
            let mut take = |event, _| {
                end = (event > first).then_some(event);
                if end.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            self.changes(row..row + 1, &mut take)?;
            if let Some(end) = end {
                return Ok(end);
            }
        }
        Ok(self.windows.events())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use highwater_notation::trace_from_text;
    use highwater_snapshots::format::write_trace;

    use super::*;

    /// A recording of steps, each given by its number and its number of allocations; `None` is setup.
    fn windows(steps: &[(Option<u32>, usize)]) -> Windows {
        let mut text = String::new();
        for (place, (number, allocations)) in steps.iter().enumerate() {
            text += &number.map_or_else(|| "phase setup\n".to_owned(), |number| format!("step {number}\n"));
            (0..*allocations).for_each(|block| text += &format!("alloc b{place}_{block} 1\n"));
        }
        let bytes: Arc<[u8]> = write_trace(Vec::new(), &trace_from_text(&text).unwrap()).unwrap().into();
        Windows::open(Arc::new(bytes), &mut |_| ControlFlow::Continue(())).unwrap()
    }

    /// All steps, found one after the other.
    fn all(windows: &Windows) -> Vec<FoundStep> {
        let mut found: Vec<FoundStep> = Vec::new();
        let after = |found: &[FoundStep]| SoughtStep::After(found.last().map_or(0, |last| last.events.start + 1));
        while let Some(next) = find(windows, after(&found)) {
            found.push(next);
        }
        found
    }

    fn find(windows: &Windows, sought: SoughtStep) -> Option<FoundStep> {
        find_step(windows, sought, &mut |_| ControlFlow::Continue(())).unwrap()
    }

    /// Short and long steps, of which some are repeated, with setup in between.
    fn restarted() -> (Windows, Vec<FoundStep>) {
        let mut parts = vec![(None, 5000)];
        parts.extend((0..30).map(|number| (Some(number), 700)));
        parts.push((Some(30), 20_000));
        parts.extend((20..40).map(|number| (Some(number), 300)));
        parts.extend([(None, 100), (Some(39), 10), (Some(50), 9000)]);
        let mut expected = Vec::new();
        let mut first = 0;
        for (number, allocations) in &parts {
            let end = first + 1 + *allocations as u64;
            expected.extend(number.map(|number| FoundStep { number, events: first..end }));
            first = end;
        }
        (windows(&parts), expected)
    }

    #[test]
    fn steps_are_found_one_after_the_other_in_both_directions() {
        let (windows, expected) = restarted();
        assert_eq!(all(&windows), expected);
        let mut back = Vec::new();
        let mut before = windows.events();
        while let Some(step) = find(&windows, SoughtStep::Before(before)) {
            before = step.events.start;
            back.push(step);
        }
        back.reverse();
        assert_eq!(back, expected);
    }

    #[test]
    fn a_number_that_repeats_is_found_after_the_place_else_from_the_start() {
        let (windows, expected) = restarted();
        for from in [0, 5001, 30_000, 52_000, windows.events()] {
            for number in (0..55).step_by(3) {
                let steps = || expected.iter().filter(|step| step.number == number);
                let wanted = steps().find(|step| step.events.start >= from).or(steps().next()).cloned();
                assert_eq!(find(&windows, SoughtStep::Number { number, from }), wanted, "step {number} from {from}");
            }
        }
    }

    #[test]
    fn few_events_are_read_for_a_step_among_many() {
        let windows = windows(&(0..400).map(|number| (Some(number), 500)).collect::<Vec<_>>());
        let mut read = 0;
        let mut watch = |events| {
            read = events;
            ControlFlow::Continue(())
        };
        let found = find_step(&windows, SoughtStep::Number { number: 300, from: 0 }, &mut watch).unwrap();
        assert_eq!(found, Some(FoundStep { number: 300, events: 300 * 501..301 * 501 }));
        assert!(read <= 3 * 4096, "{read} events");
    }

    #[test]
    fn a_search_can_be_stopped() {
        let (windows, _) = restarted();
        let stopped = find_step(&windows, SoughtStep::After(0), &mut |_| ControlFlow::Break(()));
        assert!(matches!(stopped, Err(Error::Cancelled)));
    }
}
