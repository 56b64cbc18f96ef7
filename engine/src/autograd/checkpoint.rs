//! Activation checkpointing: less memory for more arithmetic.

use super::frame::{self, Frame};
use super::record::Operation;
use super::saved::Saved;
use crate::error::Result;
use crate::tensor::Tensor;

/// Runs `part` of a model with `inputs`, and keeps of it only these until backward, which runs it again to have what it
/// needs: the memory of one part at a time for one more forward. Random numbers are the same in both runs, so gradients
/// are the same to the bit as without.
///
/// Tensors that `part` captures, such as parameters, get their gradients as always. `part` must do the same each time,
/// and must take every tensor that requires a gradient and is no parameter as an input.
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

/// Whether a checkpointed part runs on this thread for the second time: what the first run did beside computing its
/// result, such as moving running averages, is not to be done again.
pub fn is_running_again() -> bool {
    frame::is_again()
}
