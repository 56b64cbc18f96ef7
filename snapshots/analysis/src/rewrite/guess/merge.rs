//! Merges the phases of all devices into the phases of the whole program.
//!
//! Devices may train one after another, so that each phase is visible on only one device. Where runs of several devices
//! overlap in the order of events, those of the main device take precedence, then those of the device with the lowest
//! ordinal. A run extends from its first to its last event on its device; the part between two runs of a device belongs
//! to the first of them unless a run of another device covers it. Nothing is inferred from a device without further
//! events, nor from events after the failed request with which a recording ends, since these are an exception
//! unwinding.

use super::phases::{Run, Runs};
use highwater_snapshots::Phase;
use highwater_snapshots::ids::{DeviceId, EventId};

/// A range of events in one phase of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The phase; [`Phase::Other`] if no device determines it.
    pub phase: Phase,
    /// The first event.
    pub first: EventId,
    /// One past the last event. A phase without allocations or frees is empty.
    pub end: EventId,
    /// The device whose call stacks determine the phase.
    pub device: DeviceId,
}

impl Stretch {
    fn is_empty(&self) -> bool {
        self.first == self.end
    }
}

/// The ranges of one device, in order and without overlap, and the number of ranges already passed.
#[derive(Default)]
struct Layer {
    stretches: Vec<Stretch>,
    next: usize,
}

impl Layer {
    fn push(&mut self, stretch: Stretch) {
        if stretch.first < stretch.end {
            self.stretches.push(stretch);
        }
    }

    /// Returns the range that contains `event`, if any. `event` must not be earlier than in the previous call.
    fn at(&mut self, event: EventId) -> Option<Stretch> {
        while self.stretches.get(self.next).is_some_and(|stretch| stretch.end <= event) {
            self.next += 1;
        }
        self.stretches.get(self.next).copied().filter(|stretch| stretch.first <= event)
    }
}

/// Returns the phases of a program whose devices have `runs`, in order and without gaps up to `end`, one past the last
/// event considered. Takes O(runs × devices) time.
pub fn merge(runs: &[Runs], main: DeviceId, end: EventId) -> Vec<Stretch> {
    let mut order: Vec<DeviceId> = (0..runs.len() as u16).map(DeviceId).collect();
    order.sort_by_key(|device| (*device != main, *device));
    let mut own: Vec<Layer> = Vec::new();
    let mut silent: Vec<Layer> = Vec::new();
    let mut empty: Vec<Stretch> = Vec::new();
    for device in order {
        let rows = runs[usize::from(device.0)].rows();
        let last = rows.iter().map(Run::own_end).max().unwrap_or_default();
        let (mut of_own, mut of_silent) = (Layer::default(), Layer::default());
        for run in rows.iter().filter(|run| !matches!(run.phase, Phase::Setup | Phase::Other)) {
            let until =
                |first: EventId, until: EventId| Stretch { phase: run.phase, first, end: until.min(end), device };
            if run.first == run.end && run.first <= end {
                empty.push(until(run.first, run.end));
            }
            of_own.push(until(run.first, run.own_end()));
            of_silent.push(until(run.own_end(), run.end.min(last)));
        }
        own.push(of_own);
        silent.push(of_silent);
    }
    // If several devices have an empty one, it is the same one: the program marked it.
    empty.sort_by_key(|stretch| stretch.first);
    let mut layers: Vec<Layer> = own.into_iter().chain(silent).collect();
    let stretches = layers.iter().flat_map(|layer| &layer.stretches).chain(&empty);
    let mut bounds: Vec<EventId> = stretches.flat_map(|stretch| [stretch.first, stretch.end]).collect();
    bounds.extend([EventId(0), end]);
    bounds.sort_unstable();
    bounds.dedup();
    let mut merged: Vec<Stretch> = Vec::new();
    let mut empty = empty.into_iter().peekable();
    for (position, &first) in bounds.iter().enumerate() {
        let mut recorded_by = None;
        while let Some(stretch) = empty.next_if(|stretch| stretch.first == first) {
            if *recorded_by.get_or_insert(stretch.device) == stretch.device {
                merged.push(stretch);
            }
        }
        let Some(&until) = bounds.get(position + 1) else { break };
        let other = Stretch { phase: Phase::Other, first, end: until, device: main };
        let found = layers.iter_mut().find_map(|layer| layer.at(first)).unwrap_or(other);
        match merged.last_mut() {
            Some(last) if last.phase == found.phase && !last.is_empty() => last.end = until,
            _ => merged.push(Stretch { first, end: until, ..found }),
        }
    }
    merged
}

/// Returns the end of each step, one past its last event. A step ends after the last optimizer run before the next
/// forward, including a zero_grad directly after it. Empty if no optimizer ran.
pub(crate) fn step_ends(stretches: &[Stretch]) -> Vec<EventId> {
    let mut ends = Vec::new();
    let mut end = None;
    for (position, stretch) in stretches.iter().enumerate() {
        match stretch.phase {
            Phase::Optimizer => end = Some((position, stretch.end)),
            Phase::ZeroGrad if end.is_some_and(|(last, _)| last + 1 == position) => end = Some((position, stretch.end)),
            Phase::Forward => ends.extend(end.take().map(|(_, event)| event)),
            _ => {}
        }
    }
    ends.extend(end.map(|(_, event)| event));
    ends
}

#[cfg(test)]
mod tests {
    use super::super::tests::{TWO_STEPS, guessed, training};
    use super::super::{Rules, guess};
    use super::*;
    use highwater_snapshots::Category;

    /// Two steps of a model of 100 bytes on `device`, whose blocks' names end in `device`; then the model is freed.
    fn two_steps_on(device: u16) -> String {
        let lines = TWO_STEPS.lines().chain(["free w < M", "free m < M", "free loss1 < M", "free x1 < M"]);
        let on_device = lines.map(|line| {
            let (event, stack) = line.split_once(" < ").map_or((line, None), |(event, stack)| (event, Some(stack)));
            let mut words = event.splitn(3, ' ');
            let (kind, name) = (words.next().unwrap(), words.next().unwrap());
            let size = words.next().map(|size| format!(" {size}")).unwrap_or_default();
            let stack = stack.map(|stack| format!(" < {stack}")).unwrap_or_default();
            format!("{kind} {name}.{device}{size} device={device}{stack}\n")
        });
        on_device.collect()
    }

    #[test]
    fn phases_of_devices_that_train_one_after_another_come_from_each() {
        // Device 1 runs out of memory: it is the main device, and has one forward.
        let failing = "alloc w.1 5000 device=1 < S\nalloc h.1 50 device=1 < F\noom 4096 free=0 device=1 < F\n\
                       free h.1 device=1 < F\nfree w.1 device=1 < M\n";
        let text = two_steps_on(0) + &two_steps_on(2) + failing;
        let trace = guess(training(&text), &Rules::default());
        assert_eq!(trace.main_device(), DeviceId(1));
        let phases: Vec<(&str, u32)> = guessed(&trace)
            .into_iter()
            .filter(|(name, ..)| !name.starts_with("step"))
            .map(|(name, first, _)| (name, trace.events.device[first as usize].0.into()))
            .collect();
        let step = ["forward", "backward", "optimizer", "zero_grad"];
        let expected: Vec<(&str, u32)> = [0, 0, 2, 2]
            .into_iter()
            .flat_map(|device| step.map(|phase| (phase, device)))
            .chain([("forward", 1)])
            .collect();
        assert_eq!(phases, expected);
        let steps = trace.spans.rows().iter().filter_map(|span| span.step).max();
        assert_eq!(steps, Some(4), "two of each device, and the one that fails");
        let setup = trace.blocks.ids().find(|id| trace.blocks.requested[id.0 as usize] == 5000).unwrap();
        assert_eq!(trace.spans.at(trace.blocks.alloc[setup.0 as usize]).unwrap().phase, Phase::Other);
        let category = |size: u64| {
            let row = trace.blocks.requested.iter().position(|requested| *requested == size).unwrap();
            trace.blocks.category[row]
        };
        assert_eq!(
            [category(100), category(50), category(5000)],
            [Category::Parameter, Category::Activation, Category::Parameter]
        );
    }

    #[test]
    fn where_runs_of_devices_overlap_the_main_device_counts() {
        // Device 1 has the higher peak. Device 0 is in backward while device 1 is still in forward.
        let lines = "alloc a 900 device=1 < F\nalloc b 5 < F\nalloc c 5\nalloc d 900 device=1 < F\nalloc e 5\n\
                     alloc f 900 device=1\nalloc g 5 < A\nalloc h 5 device=1\n";
        let trace = guess(training(lines), &Rules::default());
        assert_eq!(trace.main_device(), DeviceId(1));
        let phases: Vec<_> = guessed(&trace).into_iter().filter(|(name, ..)| !name.starts_with("step")).collect();
        assert_eq!(phases, [("forward", 0, 4), ("backward", 4, 8)]);
    }

    #[test]
    fn what_an_exception_frees_after_the_last_failed_request_is_of_no_phase() {
        let lines = "alloc w 100 < S\nalloc h 50 < F\noom 4096 free=0 < F\nfree h < F\nfree w < M\n";
        let trace = guess(training(lines), &Rules::default());
        assert_eq!(guessed(&trace), [("forward", 1, 3)]);
        // A program that then allocates as many bytes is still in its phase.
        let trace = guess(training(&format!("{lines}alloc again 4096 < F\n")), &Rules::default());
        assert_eq!(guessed(&trace), [("forward", 1, 8)]);
    }
}
