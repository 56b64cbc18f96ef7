//! The step and phase of the program, as marked by the program or otherwise inferred from its calls.
//!
//! A phase marked by the program lasts until its guard is dropped. Outside such guards, an engine reports its activity,
//! and these rules apply:
//!
//! - Forward begins when the engine reports it, and lasts until another phase begins.
//! - Backward, optimizer and zero_grad begin with the corresponding call, and last until the next phase begins or
//!   memory is allocated after that call: the loss that the program drops after backward belongs to backward, the next
//!   batch to no phase (`other`).
//! - Steps that the program does not number are counted from 0. The first begins with forward. After an optimizer ran,
//!   the next begins with the next forward, or before it with an operation whose inputs require no gradient, such as
//!   the first operation of a model on its input, which belongs to phase `other`. Thus gradient accumulation is one
//!   step, and so are several optimizers that run one after another.
//! - Everything before the first step is setup.

use highwater_snapshots::Phase;
use highwater_snapshots::event::What;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    step: Option<u32>,
    numbers_steps: bool,
    /// The phases of guards, in the order in which they were entered.
    guarded: Vec<(EnteredPhase, Phase)>,
    entered: u64,
    outside: Phase,
    /// Whether `outside` is the phase of a call that has returned, which ends with the next allocation.
    lingers: bool,
    /// Whether an optimizer ran in this step.
    has_optimized: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EnteredPhase(u64);

/// A change of progress as it is recorded: at most a step, then a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    /// The step that begins, or `Some(None)` if training ends.
    pub(crate) step: Option<Option<u32>>,
    pub(crate) phase: Option<Phase>,
}

impl Change {
    const NONE: Self = Self { step: None, phase: None };

    pub(crate) fn events(self) -> impl Iterator<Item = What> {
        let step = self.step.map(|step| step.map_or(What::Phase(Phase::Setup), What::Step));
        step.into_iter().chain(self.phase.map(What::Phase))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The phase ends with the guard, because the program marked the phase.
    AtOnce,
    /// The phase ends with the next phase or allocation after the outermost guard, since an engine reported it.
    Lingering,
}

impl Progress {
    pub(crate) const START: Self = Self {
        step: None,
        numbers_steps: false,
        guarded: Vec::new(),
        entered: 0,
        outside: Phase::Setup,
        lingers: false,
        has_optimized: false,
    };

    pub(crate) fn step(&self) -> Option<u32> {
        self.step
    }

    pub(crate) fn phase(&self) -> Phase {
        self.guarded.last().map_or(self.outside, |(_, phase)| *phase)
    }

    pub(crate) fn is_guarded(&self) -> bool {
        !self.guarded.is_empty()
    }

    /// Returns whether [`Self::forward`] would change anything.
    pub(crate) const fn awaits_forward(&self) -> bool {
        self.guarded.is_empty() && (!matches!(self.outside, Phase::Forward) || self.lingers)
    }

    /// Returns whether [`Self::allocate`] would change anything.
    pub(crate) const fn awaits_allocation(&self) -> bool {
        self.guarded.is_empty() && self.lingers
    }

    /// Resets counted steps and inferred phases, because a recording that counts from 0 begins.
    pub(crate) fn begin_recording(&mut self) {
        if !self.numbers_steps {
            *self = Self { guarded: std::mem::take(&mut self.guarded), entered: self.entered, ..Self::START };
        }
    }

    /// Begins a step numbered by the program; `None` ends training.
    pub(crate) fn number(&mut self, step: Option<u32>) -> Change {
        let outside = if step.is_some() { Phase::Other } else { Phase::Setup };
        *self = Self { step, numbers_steps: step.is_some(), outside, entered: self.entered, ..Self::START };
        Change { step: Some(step), phase: None }
    }

    pub(crate) fn enter(&mut self, phase: Phase) -> (EnteredPhase, Change) {
        let step = if phase == Phase::Forward { self.next_step() } else { None };
        self.has_optimized |= phase == Phase::Optimizer;
        if self.outside == Phase::Forward || self.lingers {
            self.outside = Phase::Other;
            self.lingers = false;
        }
        let entered = EnteredPhase(self.entered);
        self.entered += 1;
        self.guarded.push((entered, phase));
        (entered, Change { step, phase: Some(phase) })
    }

    /// Leaves the phase of a guard. No change if another phase was entered and not left, or a step began.
    pub(crate) fn leave(&mut self, phase: Phase, entered: EnteredPhase, ending: Ending) -> Change {
        let Some(at) = self.guarded.iter().position(|(known, _)| *known == entered) else { return Change::NONE };
        self.guarded.remove(at);
        if at < self.guarded.len() {
            return Change::NONE;
        }
        if self.guarded.is_empty() && ending == Ending::Lingering {
            self.outside = phase;
            self.lingers = true;
            return Change::NONE;
        }
        Change { step: None, phase: Some(self.phase()) }
    }

    /// Records that forward is running. Has no effect inside a guard.
    pub(crate) fn forward(&mut self) -> Change {
        if !self.awaits_forward() {
            return Change::NONE;
        }
        let step = self.next_step();
        self.outside = Phase::Forward;
        self.lingers = false;
        Change { step, phase: Some(Phase::Forward) }
    }

    /// Returns whether [`Self::operate`] would change anything.
    pub(crate) const fn awaits_operation(&self) -> bool {
        self.guarded.is_empty() && self.has_optimized && !self.numbers_steps
    }

    /// Records an operation whose inputs require no gradient. After an optimizer step, it begins the next step.
    pub(crate) fn operate(&mut self) -> Change {
        if !self.awaits_operation() {
            return Change::NONE;
        }
        self.lingers = false;
        Change { step: self.next_step(), phase: None }
    }

    pub(crate) fn allocate(&mut self) -> Change {
        if !self.awaits_allocation() {
            return Change::NONE;
        }
        self.outside = Phase::Other;
        self.lingers = false;
        Change { step: None, phase: Some(Phase::Other) }
    }

    /// Records that an optimizer runs, in any phase.
    pub(crate) fn optimize(&mut self) {
        self.has_optimized = true;
    }

    /// Begins the next counted step if the current one is over, and returns it.
    fn next_step(&mut self) -> Option<Option<u32>> {
        let is_over = self.step.is_none() || self.has_optimized;
        if self.numbers_steps || !is_over {
            return None;
        }
        self.step = Some(self.step.map_or(0, |step| step.saturating_add(1)));
        self.has_optimized = false;
        self.outside = Phase::Other;
        Some(self.step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A training loop, and the events that its recording contains.
    #[derive(Default)]
    struct Loop {
        progress: Option<Progress>,
        sent: Vec<String>,
    }

    impl Loop {
        fn change(&mut self, change: impl FnOnce(&mut Progress) -> Change) {
            let events = change(self.progress.get_or_insert(Progress::START)).events();
            self.sent.extend(events.map(|event| match event {
                What::Step(step) => format!("step {step}"),
                What::Phase(phase) => phase.name().to_owned(),
                other => format!("{other:?}"),
            }));
        }

        fn enter(&mut self, phase: Phase) -> EnteredPhase {
            let mut entered = None;
            self.change(|progress| {
                let (id, change) = progress.enter(phase);
                entered = Some(id);
                change
            });
            entered.expect("it was entered")
        }

        /// Runs calls that an engine reports with a guard.
        fn run(&mut self, phases: &[Phase]) {
            for &phase in phases {
                match phase {
                    Phase::Forward => self.change(Progress::forward),
                    Phase::Other => self.change(Progress::allocate),
                    _ => {
                        let entered = self.enter(phase);
                        self.change(|progress| progress.leave(phase, entered, Ending::Lingering));
                    }
                }
            }
        }

        /// Runs `within` inside a guard of the program.
        fn mark(&mut self, phase: Phase, within: &[Phase]) {
            let entered = self.enter(phase);
            for &inner in within {
                match inner {
                    Phase::Forward => self.change(Progress::forward),
                    _ => self.change(Progress::allocate),
                }
            }
            self.change(|progress| progress.leave(phase, entered, Ending::AtOnce));
        }

        fn take_sent(&mut self) -> String {
            std::mem::take(&mut self.sent).join(" ")
        }
    }

    const STEP: [Phase; 4] = [Phase::Forward, Phase::Backward, Phase::Optimizer, Phase::ZeroGrad];

    #[test]
    fn a_plain_loop_has_steps_of_four_phases() {
        let mut run = Loop::default();
        for _ in 0..2 {
            run.run(&STEP);
        }
        assert_eq!(
            run.take_sent(),
            "step 0 forward backward optimizer zero_grad step 1 forward backward optimizer zero_grad"
        );
    }

    #[test]
    fn accumulation_is_one_step() {
        let mut run = Loop::default();
        run.run(&[Phase::Forward, Phase::Backward, Phase::Forward, Phase::Backward, Phase::Optimizer, Phase::Forward]);
        assert_eq!(run.take_sent(), "step 0 forward backward forward backward optimizer step 1 forward");
    }

    #[test]
    fn two_optimizers_in_a_row_are_one_step_and_with_forward_between_two() {
        let mut run = Loop::default();
        run.run(&[Phase::Forward, Phase::Backward, Phase::Optimizer, Phase::Optimizer]);
        run.run(&[Phase::Forward, Phase::Backward, Phase::Optimizer]);
        assert_eq!(run.take_sent(), "step 0 forward backward optimizer optimizer step 1 forward backward optimizer");
    }

    #[test]
    fn an_operation_on_data_before_forward_belongs_to_the_step_that_begins() {
        let mut run = Loop::default();
        for _ in 0..2 {
            run.change(Progress::operate);
            run.run(&STEP);
        }
        let phases = "forward backward optimizer zero_grad";
        assert_eq!(run.take_sent(), format!("step 0 {phases} step 1 {phases}"));
        run.run(&[Phase::Other]);
        run.change(Progress::operate);
        run.change(Progress::operate);
        assert_eq!(run.take_sent(), "other step 2");
        run.change(|progress| progress.number(Some(7)));
        run.run(&STEP);
        run.change(Progress::operate);
        assert_eq!(run.take_sent(), format!("step 7 {phases}"), "the program numbers its steps");
    }

    #[test]
    fn an_optimizer_within_backward_ends_the_step_too() {
        let mut run = Loop::default();
        for _ in 0..2 {
            run.change(Progress::forward);
            let entered = run.enter(Phase::Backward);
            run.progress.as_mut().expect("it runs").optimize();
            run.change(|progress| progress.leave(Phase::Backward, entered, Ending::Lingering));
        }
        assert_eq!(run.take_sent(), "step 0 forward backward step 1 forward backward");
    }

    #[test]
    fn what_is_allocated_after_a_call_belongs_to_no_phase() {
        let mut run = Loop::default();
        run.run(&[Phase::Other, Phase::Forward, Phase::Other, Phase::Backward, Phase::Other, Phase::Other]);
        run.run(&[Phase::Optimizer, Phase::ZeroGrad, Phase::Other, Phase::Forward]);
        assert_eq!(run.take_sent(), "step 0 forward backward other optimizer zero_grad other step 1 forward");
    }

    #[test]
    fn phases_that_the_program_marks_are_kept_and_count_steps() {
        let mut run = Loop::default();
        for _ in 0..2 {
            run.mark(Phase::Forward, &[Phase::Forward, Phase::Other]);
            run.mark(Phase::Optimizer, &[Phase::Forward]);
        }
        assert_eq!(run.take_sent(), "step 0 forward other optimizer other step 1 forward other optimizer other");
    }

    #[test]
    fn guards_that_are_dropped_in_another_order_leave_the_program_in_the_right_phase() {
        let mut run = Loop::default();
        let [a, b, c] = [Phase::Forward, Phase::Backward, Phase::Optimizer].map(|phase| run.enter(phase));
        run.take_sent();
        run.change(|progress| progress.leave(Phase::Backward, b, Ending::AtOnce));
        run.change(|progress| progress.leave(Phase::Forward, a, Ending::AtOnce));
        assert_eq!(run.take_sent(), "", "the innermost is still the one");
        run.change(|progress| progress.leave(Phase::Optimizer, c, Ending::AtOnce));
        assert_eq!(run.take_sent(), "other");
        let outer = run.enter(Phase::Forward);
        run.change(|progress| progress.number(Some(7)));
        run.take_sent();
        run.change(|progress| progress.leave(Phase::Forward, outer, Ending::AtOnce));
        let progress = run.progress.as_ref().expect("it runs");
        assert_eq!((run.sent.len(), progress.phase()), (0, Phase::Other), "the step ended the phase already");
    }

    #[test]
    fn steps_that_the_program_numbers_are_not_counted() {
        let mut run = Loop::default();
        for step in [7, 9] {
            run.change(|progress| progress.number(Some(step)));
            run.run(&STEP);
            run.run(&STEP);
        }
        let phases = "forward backward optimizer zero_grad";
        assert_eq!(run.take_sent(), format!("step 7 {phases} {phases} step 9 {phases} {phases}"));
        run.change(|progress| progress.number(None));
        run.run(&STEP);
        assert_eq!(run.take_sent(), format!("setup step 0 {phases}"));
    }

    #[test]
    fn a_recording_that_begins_in_the_middle_counts_from_its_first_forward() {
        let mut run = Loop::default();
        run.run(&STEP);
        run.run(&[Phase::Forward]);
        let progress = run.progress.as_mut().expect("it runs");
        progress.begin_recording();
        assert_eq!((progress.step(), progress.phase()), (None, Phase::Setup));
        run.take_sent();
        run.run(&[Phase::Backward, Phase::Optimizer, Phase::Forward]);
        assert_eq!(run.take_sent(), "backward optimizer step 0 forward");

        let progress = run.progress.as_mut().expect("it runs");
        progress.number(Some(5));
        progress.begin_recording();
        assert_eq!((progress.step(), progress.phase()), (Some(5), Phase::Other), "what the program says stays");
    }
}
