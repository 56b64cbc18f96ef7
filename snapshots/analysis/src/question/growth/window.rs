//! The window of steps over which growth is measured, and the reason for choosing it.

use std::collections::HashSet;
use std::ops::Range;

use highwater_snapshots::Result;
use highwater_snapshots::ids::{BlockId, DeviceId};
use highwater_snapshots::trace::Trace;
use highwater_snapshots::units::format_duration;

use super::steps::{Cut, Idle, Steps};
use crate::grouping::lifetime::step_of;
use crate::question::source::Source;

/// The reason for choosing the first step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstStep {
    /// The user requested this step.
    Asked,
    /// It is the second step. The first step allocates memory that later steps reuse, and its beginning may not be
    /// recorded.
    AfterFirst,
    /// It is the first step, because no later step is complete, or because it is also the requested last step.
    Only,
}

/// The reason for choosing the last step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LastStep {
    /// The user requested this step.
    Asked,
    /// This is the last step of the recording.
    Last,
    /// It is the last complete step; the following step is incomplete for this reason.
    Whole(Cut),
    /// It is the only step, but is incomplete for this reason.
    OnlyCut(Cut),
}

/// Number of parts into which bursts are divided when leaks are searched. If there are fewer bursts, each is a part.
const PARTS: usize = 8;

highwater_snapshots::vocabulary!(
    /// The units of time between whose ends growth is measured, with their names on the command line.
    #[derive(Default)]
    Between {
        /// The steps of the recording.
        #[default]
        Steps = "steps",
        /// The bursts of work between idle points, at which memory returns to its minimum.
        Idle = "idle",
    }
);

impl Between {
    /// Returns the noun for a period, `step` or `burst`.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Steps => "step",
            Self::Idle => "burst",
        }
    }
}

/// Consecutive steps. Growth is measured from the state before the first step to the state after the last one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepWindow {
    /// The step numbers with their ranges of events. Empty for a recording without steps.
    pub steps: Vec<(u32, Range<u64>)>,
    /// From the first event of the first step to one past the last event of the last step; without steps, all events.
    events: Range<u64>,
    /// The reason for choosing the first step.
    pub first: FirstStep,
    /// The reason for choosing the last step.
    pub last: LastStep,
    /// Whether these are steps or bursts.
    pub between: Between,
    /// The property that distinguishes idle points, if the steps are bursts and time decides.
    idle: Option<Idle>,
}

/// The requested steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepRange {
    /// The first step; `None` for the default.
    pub from: Option<u32>,
    /// The last step; `None` for the default.
    pub to: Option<u32>,
    /// Whether to use steps or bursts.
    pub between: Between,
}

/// The error if the requested steps cannot be selected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoWindow {
    /// The requested step that does not exist or is out of order; `None` if no requested step is the reason.
    pub step: Option<Bound>,
    /// The reason, with the first and the last existing step if a requested one does not exist.
    pub why: String,
}

impl From<NoWindow> for String {
    fn from(refused: NoWindow) -> Self {
        refused.why
    }
}

/// A requested first or last step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The first step.
    From(u32),
    /// The last step.
    To(u32),
}

impl StepWindow {
    /// Returns the requested steps of `device`; by default from the second complete step, since the first one allocates
    /// memory that later steps reuse, to the last complete step. The inner result is an error if the device has no
    /// steps, or if a requested one does not exist or is out of order.
    ///
    /// # Errors
    /// Fails if a window of the recording cannot be read.
    pub fn of(source: &Source<'_>, device: DeviceId, range: StepRange) -> Result<Result<Self, NoWindow>> {
        Ok(Self::among(Steps::of_device(source, device)?, range))
    }

    /// Returns the requested steps among `steps`, or all events if there are no steps and none are requested. Survivors
    /// can then be measured, but not growth per step.
    ///
    /// # Errors
    /// Fails if the device lacks a requested step.
    pub(crate) fn among_any(steps: Steps, range: StepRange) -> Result<Self, NoWindow> {
        if steps.runs.is_empty() && range == StepRange::default() {
            let (first, last) = (FirstStep::Asked, LastStep::Asked);
            let between = range.between;
            return Ok(Self { steps: Vec::new(), events: steps.events, first, last, between, idle: None });
        }
        Self::among(steps, range)
    }

    /// Returns the requested bursts.
    ///
    /// # Errors
    /// Fails if the device has fewer than two bursts, or lacks a requested one.
    pub(crate) fn among_bursts(bursts: Steps, range: StepRange) -> Result<Self, NoWindow> {
        if bursts.runs.len() < 2 {
            let why = "there are no bursts to compare, because memory does not fall to a low level three times; omit \
                       the option to compare steps, or the whole recording if it has no steps";
            return Err(NoWindow { step: None, why: why.to_owned() });
        }
        Self::among(bursts, range)
    }

    /// Returns the requested steps among `steps`.
    ///
    /// # Errors
    /// Fails like the inner result of [`Self::of`].
    pub(crate) fn among(steps: Steps, range: StepRange) -> Result<Self, NoWindow> {
        let StepRange { from, to, between } = range;
        let cut = steps.cut();
        let Steps { mut runs, how_to_mark, idle, .. } = steps;
        let Some(last) = runs.len().checked_sub(1) else {
            let none = "the recording has no steps: none are marked, and no optimizer step was recognized";
            let step = from.map(Bound::From).or(to.map(Bound::To));
            return Err(NoWindow { step, why: format!("{none}; mark them {how_to_mark}") });
        };
        let find = |step: u32, bound: fn(u32) -> Bound| {
            let missing = || format!("the recording has {}s {} to {}", between.unit(), runs[0].step, runs[last].step);
            let found = runs.iter().position(|run| run.step == step);
            found.ok_or_else(|| NoWindow { step: Some(bound(step)), why: missing() })
        };
        let whole = if cut.is_some() { last.saturating_sub(1) } else { last };
        let first_at = match from {
            Some(step) => (find(step, Bound::From)?, FirstStep::Asked),
            None if whole > 0 => (1, FirstStep::AfterFirst),
            None => (0, FirstStep::Only),
        };
        let last_at = match to {
            Some(step) => (find(step, Bound::To)?, LastStep::Asked),
            None => match cut {
                Some(cut) if last == 0 => (last, LastStep::OnlyCut(cut)),
                Some(cut) if whole >= first_at.0 => (whole, LastStep::Whole(cut)),
                _ => (last, LastStep::Last),
            },
        };
        // A requested last step may precede the automatically chosen first one.
        let first_at = match from {
            None if last_at.0 < first_at.0 => (0, FirstStep::Only),
            _ => first_at,
        };
        if first_at.0 > last_at.0 {
            let [first, last] = [first_at.0, last_at.0].map(|row| runs[row].step);
            let step = to.map(Bound::To).or(from.map(Bound::From));
            let unit = between.unit();
            return Err(NoWindow { step, why: format!("{unit} {first} comes after {unit} {last}") });
        }
        runs.truncate(last_at.0 + 1);
        let steps: Vec<(u32, Range<u64>)> = runs.drain(first_at.0..).map(|run| (run.step, run.events)).collect();
        let start = steps.first().map_or(0, |(_, events)| events.start);
        let events = start..steps.last().map_or(start, |(_, events)| events.end);
        Ok(Self { steps, events, first: first_at.1, last: last_at.1, between, idle })
    }

    /// Returns the last two complete steps of `device`; `None` if there are fewer.
    pub(crate) fn last_two(source: &Source<'_>, device: DeviceId) -> Result<Option<[u32; 2]>> {
        let steps = Steps::of_device(source, device)?;
        let numbers: Vec<u32> = steps.runs.iter().map(|run| run.step).collect();
        let whole = numbers.len() - usize::from(steps.cut().is_some() && numbers.len() > 1);
        Ok(numbers[..whole].last_chunk().copied())
    }

    /// Returns whether the window has a complete step; false if its only step is incomplete.
    pub fn is_whole(&self) -> bool {
        !matches!(self.last, LastStep::OnlyCut(_))
    }

    /// Returns the number of the first step; 0 without steps.
    pub fn from(&self) -> u32 {
        self.steps.first().map_or(0, |(step, _)| *step)
    }

    /// Returns the number of the last step; 0 without steps.
    pub fn to(&self) -> u32 {
        self.steps.last().map_or(0, |(step, _)| *step)
    }

    /// The events of the last step; without steps, all events.
    pub(crate) fn last_events(&self) -> Range<u64> {
        self.steps.last().map_or(self.events.clone(), |(_, events)| events.clone())
    }

    /// Returns the events that determine which blocks are still in use at the end: the last step; without steps, the
    /// last tenth of all events.
    pub(crate) fn recent_events(&self) -> Range<u64> {
        let Range { start, end } = self.last_events();
        if self.steps.is_empty() { end - (end - start).div_ceil(10)..end } else { start..end }
    }

    /// Returns whether `steps` includes every step of the window, which must have several steps. In a window of more
    /// than
    /// three, the last step of the recording may be missing, because allocations between an optimizer step and the next
    /// forward, such as a batch, belong to the earlier step. Bursts differ from each other, so one burst in each part
    /// of
    /// the window suffices.
    pub(crate) fn is_every(&self, steps: &HashSet<u32>) -> bool {
        let all = self.steps.len();
        if self.between == Between::Idle {
            let parts = all.min(PARTS);
            let part = |step: &u32| (step - self.from()) as usize * parts / all;
            return all > 1 && steps.iter().map(part).collect::<HashSet<usize>>().len() == parts;
        }
        let may_lack_last = self.last == LastStep::Last && all > 3 && !steps.contains(&self.to());
        all > 1 && steps.len() == all - usize::from(may_lack_last)
    }

    /// The step, or the burst of the window, in which a block was allocated; `None` outside of them.
    pub fn step_of(&self, trace: &Trace, id: BlockId) -> Option<u32> {
        self.step_at(step_of(trace, &trace.blocks.get(id)), trace.alloc_number(id))
    }

    /// Returns `marked`, the step to which the recording assigns an event, or for bursts the burst that contains the
    /// event.
    pub(crate) fn step_at(&self, marked: Option<u32>, event: Option<u64>) -> Option<u32> {
        if self.between == Between::Steps {
            return marked;
        }
        let event = event?;
        let row = self.steps.partition_point(|(_, events)| events.end <= event);
        self.steps.get(row).filter(|(_, events)| events.contains(&event)).map(|(step, _)| *step)
    }

    /// Returns the range of events from the first event of the first step to the last event of the last step; without
    /// steps, all events.
    pub fn events(&self) -> Range<u64> {
        self.events.clone()
    }

    /// Returns the reasons for the beginning and the end of the window, one sentence each, and the property that
    /// separates bursts. Requested steps have no reason.
    pub fn reasons(&self) -> Vec<String> {
        let unit = self.between.unit();
        let first = match self.first {
            FirstStep::Asked => None,
            FirstStep::Only if matches!(self.last, LastStep::OnlyCut(_)) => None,
            FirstStep::AfterFirst => Some(format!(
                "Counted from {unit} {}: the first {unit} of a recording allocates memory that later {unit}s reuse.",
                self.from()
            )),
            FirstStep::Only => {
                Some(format!("Counted over {unit} {} only: its growth may be one-time allocations.", self.from()))
            }
        };
        let last = match &self.last {
            LastStep::Asked | LastStep::Last => None,
            LastStep::Whole(cut) => Some(format!("Counted to step {}: the next step {cut}.", self.to())),
            LastStep::OnlyCut(cut) => Some(format!("The only step, {}, {cut}: growth per step is unknown.", self.to())),
        };
        let idle = self.idle.map(|idle| {
            let [shortest, longest] = [idle.shortest_ns, idle.longest_within_ns].map(format_duration);
            format!("Between bursts, nothing is allocated for {shortest} or more; within them, for at most {longest}.")
        });
        first.into_iter().chain(last).chain(idle).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_notation::trace_from_text;
    use highwater_snapshots::Phase;

    /// Builds steps with the given phases.
    fn text(steps: &[&str]) -> String {
        let mut text = String::from("alloc w 1\n");
        for (step, phases) in steps.iter().enumerate() {
            text += &format!("step {}\n", step + 10);
            phases.split_whitespace().for_each(|phase| text += &format!("phase {phase}\nalloc x 1\n"));
        }
        text
    }

    fn of(text: &str, range: StepRange) -> Result<StepWindow, NoWindow> {
        StepWindow::of(&Source::in_memory(trace_from_text(text).unwrap()), DeviceId(0), range).unwrap()
    }

    fn window(steps: &[&str], from: Option<u32>, to: Option<u32>) -> (u32, u32, FirstStep, LastStep) {
        let window = of(&text(steps), StepRange { from, to, ..StepRange::default() }).unwrap();
        (window.from(), window.to(), window.first, window.last)
    }

    #[test]
    fn it_goes_from_the_second_step_to_the_last_whole_one() {
        use FirstStep::{AfterFirst, Asked, Only};
        let (whole, cut) = ("forward backward optimizer", "forward");
        let lacks = LastStep::Whole(Cut::Lacks(vec![Phase::Backward, Phase::Optimizer]));
        assert_eq!(window(&[whole; 4], None, None), (11, 13, AfterFirst, LastStep::Last));
        assert_eq!(window(&[whole, whole, whole, cut], None, None), (11, 12, AfterFirst, lacks.clone()));
        assert_eq!(window(&[whole, cut], None, None), (10, 10, Only, lacks));
        assert_eq!(window(&[whole], None, None), (10, 10, Only, LastStep::Last));
        assert_eq!(window(&[whole, whole, cut], Some(12), None), (12, 12, Asked, LastStep::Last));
        assert_eq!(window(&[whole; 3], Some(10), Some(11)), (10, 11, Asked, LastStep::Asked));
        assert_eq!(window(&[whole; 3], None, Some(10)), (10, 10, Only, LastStep::Asked));
    }

    #[test]
    fn a_step_in_which_memory_ran_out_is_cut() {
        let text = "step 0\nphase forward\nalloc a 1\nstep 1\nphase forward\nalloc b 1\noom 5 free=0\nalloc c 1\n";
        let window = of(text, StepRange::default()).unwrap();
        assert_eq!((window.to(), &window.last), (0, &LastStep::Whole(Cut::OutOfMemory)));
        assert_eq!(window.reasons()[1], "Counted to step 0: the next step runs out of memory.");
    }

    #[test]
    fn a_step_into_which_the_end_of_the_program_falls_is_cut() {
        let step = "phase forward\nalloc a 1\nfree a\n";
        let text = format!("baseline w 5 parameter\nstep 0\n{step}step 1\n{step}step 2\n{step}");
        let last = |text: &str| of(text, StepRange::default()).unwrap().to();
        assert_eq!((last(&text), last(&format!("{text}free w\n"))), (2, 1));
        assert_eq!(last(&format!("{text}phase setup\nfree w\n")), 2, "what comes after the steps belongs to none");
    }

    #[test]
    fn the_only_step_is_no_whole_one_where_memory_ran_out_in_it() {
        let text = "alloc w 1\nstep 3\nphase forward\nalloc a 1\noom 5 free=0\nfree a\nfree w\n";
        let window = of(text, StepRange::default()).unwrap();
        assert!(!window.is_whole());
        assert_eq!(window.reasons(), ["The only step, 3, runs out of memory: growth per step is unknown."]);
        assert!(
            StepWindow::last_two(&Source::in_memory(trace_from_text(text).unwrap()), DeviceId(0)).unwrap().is_none()
        );
    }

    #[test]
    fn the_last_step_of_a_device_is_cut_where_it_merely_frees_or_allocates_next_to_nothing() {
        let step = |step: u32, device: u16| {
            format!(
                "step {step}\nphase forward\nalloc a{step} 500 device={device}\nphase backward\n\
                 alloc g{step} 500 device={device}\nfree a{step} device={device}\nfree g{step} device={device}\n"
            )
        };
        let last = |text: &str| {
            let window = of(text, StepRange::default()).unwrap();
            (window.to(), window.last)
        };
        let steps = |device: u16| (0..3).map(|number| step(number, device)).collect::<String>();
        // What device 0 kept is freed while device 1 trains.
        let text = format!(
            "alloc w 500\nalloc v 500 device=1\n{}{}",
            steps(0),
            step(3, 1).replace("phase back", "free w\nphase back")
        );
        let lacks = Cut::Lacks(vec![Phase::Backward]);
        assert_eq!(last(&text), (2, LastStep::Whole(lacks.clone())));
        assert_eq!(last(&format!("{text}step 4\n{}", step(4, 1))), (2, LastStep::Whole(lacks)), "others go on");
        let frees = text.replace("alloc w 500", "alloc w 500 parameter");
        assert_eq!(last(&frees), (2, LastStep::Whole(Cut::FreesModel)));
        let plain = "step 0\nalloc a 500\nfree a\nstep 1\nalloc b 500\nfree b\nstep 2\nalloc c 1\nfree c\n";
        assert_eq!(last(plain), (1, LastStep::Whole(Cut::AllocatesLittle)));
    }

    #[test]
    fn steps_that_are_not_there_are_reported_with_those_that_are() {
        let why = |from, to| of(&text(&["forward"; 3]), StepRange { from, to, ..StepRange::default() }).unwrap_err();
        let missing = why(Some(3), None);
        assert!(missing.step == Some(Bound::From(3)) && missing.why.contains("the recording has steps 10 to 12"));
        assert_eq!(why(Some(3), Some(4)).step, Some(Bound::From(3)));
        assert_eq!(why(Some(11), Some(4)).step, Some(Bound::To(4)));
        let reversed = why(Some(12), Some(11));
        assert!(reversed.step == Some(Bound::To(11)) && reversed.why.contains("step 12 comes after step 11"));
        assert!(of(&text(&[]), StepRange::default()).unwrap_err().why.contains("no steps"));
    }
}
