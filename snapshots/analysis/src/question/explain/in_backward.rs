//! Detects whether the optimizer updates each parameter during backward, or cannot do so because gradients are
//! accumulated.

use super::selection::is_kept_gradient;
use highwater_snapshots::Phase;
use highwater_snapshots::ids::{BlockId, DeviceId};
use highwater_snapshots::trace::Trace;

/// Returns whether the optimizer steps within backward in `spans`: backward continues after an update in the same step,
/// and there is at least one update for every two of the `gradients` gradients that outlive backward.
pub(crate) fn is_step_in_backward(spans: impl Iterator<Item = (Option<u32>, Phase)>, gradients: u64) -> bool {
    let (mut updates, mut resumed, mut updated_in) = (0, 0, None);
    for (step, phase) in spans {
        match phase {
            Phase::Optimizer => (updates, updated_in) = (updates + 1, Some(step)),
            Phase::Backward if updated_in == Some(step) => (resumed, updated_in) = (resumed + 1, None),
            // The forward of another loss, such as that of a second network.
            Phase::Forward => updated_in = None,
            _ => {}
        }
    }
    resumed > 0 && updates * 2 >= gradients
}

/// Returns whether several backward passes, each after its own forward, contribute to the gradients of one update in
/// `spans`.
pub(crate) fn accumulates_gradients(spans: impl Iterator<Item = (Option<u32>, Phase)>) -> bool {
    let (mut of_step, mut backwards, mut is_forward) = (None, 0, true);
    for (step, phase) in spans {
        if of_step != Some(step) {
            (of_step, backwards, is_forward) = (Some(step), 0, true);
        }
        match phase {
            Phase::Forward => is_forward = true,
            Phase::Backward if is_forward => (backwards, is_forward) = (backwards + 1, false),
            Phase::Optimizer if backwards > 1 => return true,
            Phase::Optimizer | Phase::ZeroGrad => backwards = 0,
            _ => {}
        }
    }
    false
}

/// Returns the number of gradients that `trace` allocates in backward on `device` and that outlive it.
pub(crate) fn kept_gradients(trace: &Trace, device: DeviceId) -> u64 {
    let is_one = |id: &BlockId| {
        let alloc = trace.blocks.alloc[id.0 as usize];
        let is_in_backward = || trace.stage_at(alloc).is_some_and(|stage| stage.phase == Phase::Backward);
        let is_here = trace.blocks.device[id.0 as usize] == device && alloc.is_some();
        is_here && is_kept_gradient(trace, *id) && is_in_backward()
    };
    trace.blocks.ids().filter(is_one).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gradients_are_accumulated_where_forward_and_backward_repeat_before_an_update() {
        use Phase::{Backward, Forward, Optimizer, Other, ZeroGrad};
        let is_one = |phases: &[Phase]| accumulates_gradients(phases.iter().map(|phase| (Some(0), *phase)));
        assert!(is_one(&[Forward, Other, Backward, Forward, Other, Backward, Optimizer, ZeroGrad]));
        assert!(!is_one(&[Forward, Backward, Other, Backward, Optimizer]), "one forward");
        assert!(!is_one(&[Forward, Backward, Optimizer, Forward, Backward, Optimizer]), "two networks");
        assert!(!is_one(&[Forward, Backward, ZeroGrad, Forward, Backward, Optimizer]), "dropped between");
        assert!(!is_one(&[Forward, Backward, Forward, Backward]), "no update");
    }

    #[test]
    fn an_optimizer_is_in_backward_where_updates_take_turns_with_gradients() {
        use Phase::{Backward, Forward, Optimizer, ZeroGrad};
        let is_one =
            |phases: &[Phase], gradients| is_step_in_backward(phases.iter().map(|phase| (Some(0), *phase)), gradients);
        assert!(is_one(&[Forward, Backward, Optimizer, Backward, Optimizer, ZeroGrad, Backward, Optimizer], 3));
        assert!(!is_one(&[Forward, Backward, Optimizer], 1), "a step after backward");
        assert!(!is_one(&[Forward, Backward, Optimizer, Forward, Backward, Optimizer], 2), "two networks");
        assert!(!is_one(&[Forward, Backward, Optimizer, Backward, Optimizer], 50), "two losses");
        let steps = [(Some(0), Backward), (Some(0), Optimizer), (Some(1), Backward), (Some(1), Optimizer)];
        assert!(!is_step_in_backward(steps.into_iter(), 2), "the next step");
    }
}
