//! Moves the view from step to step, and determines when a step of a long recording must be searched in other parts.

use std::ops::Range;

use highwater_analysis::SoughtStep;

use super::{NARROWEST, Selection, View, moments_after, within};
use crate::Recording;

/// Maximum distance, in units of the axis, between the ends of views that count as equal.
const SAME_VIEW: f64 = 0.25;

struct Shown {
    number: u32,
    events: Range<u32>,
    /// The visible range of the horizontal axis.
    x: Range<f64>,
}

impl Selection {
    /// Shows the next step, or the previous one for -1. If the view does not show a single step, shows the nearest one.
    /// Only the part of a step with activity of the device is shown; steps without such activity are skipped.
    pub(crate) fn go_to_step(&mut self, recording: &Recording, by: i64) {
        let steps = self.steps_on_device(recording);
        let target = self.step_by(&steps, by).clamp(0, (steps.len() as i64 - 1).max(0));
        if let Some(step) = steps.get(target as usize) {
            self.show(recording, View { x: step.x.clone(), y: self.view.y.clone() });
        }
    }

    /// Returns the step that [`Self::go_to_step`] has to search for in other parts of a long recording, because this
    /// part does not contain all of it.
    pub(crate) fn step_elsewhere(&self, recording: &Recording, by: i64) -> Option<SoughtStep> {
        let shown = recording.events();
        let steps = self.steps_on_device(recording);
        let number = |event: u32| shown.start + u64::from(event);
        match usize::try_from(self.step_by(&steps, by)).ok().and_then(|target| steps.get(target)) {
            // The step may begin before this part.
            Some(step) if recording.cuts_off(step.number, &step.events) => {
                Some(SoughtStep::Before(number(step.events.start) + 1))
            }
            Some(_) => None,
            None if by > 0 => {
                let has_more = recording.run.as_ref().is_some_and(|run| shown.end < run.events());
                has_more.then_some(SoughtStep::After(shown.end))
            }
            None => {
                let first = steps.first().map_or(shown.start, |first| number(first.events.start));
                let begins_before = steps.first().is_some_and(|first| {
                    first.events.start == 0 && recording.trace.start.stage.step == Some(first.number)
                });
                (shown.start > 0).then_some(SoughtStep::Before(first + u64::from(begins_before)))
            }
        }
    }

    pub(crate) fn show_step(&mut self, recording: &Recording, event: u32) {
        let Some((_, events)) = recording.steps.iter().find(|(_, events)| events.contains(&event)) else { return };
        let x = self.x_of_step(recording, events);
        self.show(recording, View { x, y: self.view.y.clone() });
    }

    /// Shows the next step with number `number` that begins in the view or later. Skips a step that is already shown
    /// alone. If there is none, shows the first such step. Returns whether there is one.
    pub(crate) fn go_to_step_number(&mut self, recording: &Recording, number: u32) -> bool {
        let from = self.first_event_to_search(recording);
        let steps = || recording.steps.iter().filter(|(known, _)| *known == number).map(|(_, events)| events.start);
        let found = steps().find(|first| *first >= from).or_else(|| steps().next());
        found.inspect(|first| self.show_step(recording, *first)).is_some()
    }

    /// Returns the first visible event; if a single step is shown, the second event of that step.
    pub(crate) fn first_event_to_search(&self, recording: &Recording) -> u32 {
        let steps = self.steps_on_device(recording);
        let alone = self.step_in_view(&steps).filter(|step| self.is_alone(step));
        let first = || self.moment_at(&recording.trace, self.view.x.start).saturating_sub(1) as u32;
        alone.map_or_else(first, |step| step.events.start + 1)
    }

    /// Returns the index of the step `by` steps after the shown one. If the view does not show a single step, returns
    /// the index of the nearest step. The index may be out of range.
    fn step_by(&self, steps: &[Shown], by: i64) -> i64 {
        let now = self.row_in_view(steps);
        if self.step_in_view(steps).is_some_and(|step| self.is_alone(step)) { now + by } else { now }
    }

    fn row_in_view(&self, steps: &[Shown]) -> i64 {
        let middle = (self.view.x.start + self.view.x.end) / 2.0;
        (steps.partition_point(|step| step.x.start <= middle) as i64 - 1).max(0)
    }

    fn step_in_view<'s>(&self, steps: &'s [Shown]) -> Option<&'s Shown> {
        steps.get(self.row_in_view(steps) as usize)
    }

    fn is_alone(&self, step: &Shown) -> bool {
        (step.x.start - self.view.x.start).abs() < SAME_VIEW && (step.x.end - self.view.x.end).abs() < SAME_VIEW
    }

    /// The view that shows a step, within the device's moments.
    fn x_of_step(&self, recording: &Recording, events: &Range<u32>) -> Range<f64> {
        let whole = self.whole(recording).x;
        let x = self.x_of_events(&recording.trace, events.clone());
        within(&(x.start.max(whole.start)..x.end.min(whole.end)), &whole, NARROWEST)
    }

    fn steps_on_device(&self, recording: &Recording) -> Vec<Shown> {
        let moments = &recording.devices[self.device].moments;
        let has_moments = |events: &Range<u32>| {
            let shown = moments_after(events);
            shown.start < moments.end && shown.end > moments.start
        };
        let steps = recording.steps.iter().filter(|(_, events)| has_moments(events));
        steps
            .map(|(number, events)| Shown {
                number: *number,
                events: events.clone(),
                x: self.x_of_step(recording, events),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selection::Axis;
    use highwater_notation::trace_from_text;

    #[test]
    fn steps_of_a_device_are_shown_one_after_the_other_within_its_moments() {
        let text = "
            step 0
            alloc x 10
            alloc a 10 device=1
            step 1
            alloc b 10 device=1
            step 2
            alloc c 10 device=1
            step 3
            alloc y 10
        ";
        let recording = Recording::new("test", None, trace_from_text(text).unwrap());
        let mut selection = Selection::new(&recording);
        selection.set_device(&recording, 1);
        assert_eq!(selection.view().x, 2.0..8.0);
        let mut seen = Vec::new();
        for by in [-1, -1, -1, 1, 1, 1] {
            selection.go_to_step(&recording, by);
            seen.push(selection.view().x.clone());
        }
        // From everything to the step in the middle; nothing is left of the step that begins after the device's end.
        assert_eq!(seen, [4.0..6.0, 2.0..4.0, 2.0..4.0, 4.0..6.0, 6.0..8.0, 6.0..8.0]);
        selection.set_axis(&recording, Axis::Time);
        for expected in [2, 1, 0] {
            assert_eq!(selection.view().x, selection.steps_on_device(&recording)[expected].x);
            selection.go_to_step(&recording, -1);
        }
    }

    #[test]
    fn a_number_that_repeats_is_gone_to_after_the_view_else_from_the_start() {
        let text = "step 0\nalloc a 1\nstep 1\nalloc b 1\nstep 2\nalloc c 1\nstep 1\nalloc d 1\nstep 2\nalloc e 1";
        let recording = Recording::new("test", None, trace_from_text(text).unwrap());
        let mut selection = Selection::new(&recording);
        let mut go = |number| (selection.go_to_step_number(&recording, number), selection.view().x.start);
        assert_eq!([go(1), go(1), go(2), go(1)], [(true, 3.0), (true, 7.0), (true, 9.0), (true, 3.0)]);
        assert_eq!(go(2), (true, 5.0));
        assert_eq!(go(7), (false, 5.0), "the view stays");
    }
}
