//! Activation checkpointing, which saves memory at the cost of more computation.

use super::frame::{self, Frame};
use super::record::Operation;
use super::saved::Saved;
use crate::{Result, Tensor};

/// Runs `part` of a model with `inputs`, and saves only these inputs for backward. Backward runs the part again to
/// recompute the tensors that it needs. Only one part's activations are live at a time, at the cost of one more forward
/// pass. Random numbers are equal in both runs, so gradients are bitwise equal to those without checkpointing. Without
/// inputs, the part is not checkpointed.
///
/// Tensors that `part` captures, such as parameters, get their gradients as usual. `part` must do the same in both
/// runs. Every tensor that requires a gradient and is not a parameter must be one of `inputs`.
///
/// # Errors
/// Fails if `part` fails.
pub fn checkpoint(
    inputs: &[&Tensor],
    part: impl Fn(&[Tensor]) -> Result<Tensor> + Send + Sync + 'static,
) -> Result<Tensor> {
    let given: Vec<Tensor> = inputs.iter().map(|&input| input.clone()).collect();
    if !Operation::is_recording() || inputs.is_empty() {
        return part(&given);
    }
    let kept: Vec<(Saved, bool)> = inputs.iter().map(|input| (Saved::new(input), input.requires_grad())).collect();
    let again = move |op: &'static str| {
        let leaf = |(saved, requires_grad): (Saved, bool)| {
            let input = saved.take(op)?;
            input.set_requires_grad(requires_grad)?;
            Ok(input)
        };
        kept.into_iter().map(leaf).collect()
    };
    Frame::run(&given, Box::new(again), Box::new(part))
}

/// Returns whether this thread is recomputing a checkpointed part. Side effects of the first run, such as updates of
/// running averages, must not be repeated then.
pub fn is_running_again() -> bool {
    frame::is_again()
}
