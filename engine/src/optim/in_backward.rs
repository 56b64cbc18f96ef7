//! In backward: a rule applied to each parameter as soon as its gradient is complete, which is then freed at once.

use super::rule::{Rule, Update};
use crate::autograd::no_grad;
use crate::error::Result;
use crate::nn::Parameter;

/// From now on, every backward pass steps and frees each parameter's gradient as soon as it is complete, by hooks that
/// each own the state of one parameter. There is no optimizer phase, and never more than a few gradients are alive.
/// This is the way of PyTorch's tutorial "How to save memory by fusing the optimizer step into the backward pass".
///
/// [`Tensor::clear_hooks`](crate::Tensor::clear_hooks) of each parameter undoes it. Fails if a setting of the rule
/// makes no sense.
pub fn run_in_backward<R: Rule>(rule: &R, parameters: &[Parameter]) -> Result<()> {
    rule.check()?;
    for parameter in parameters.iter().filter(|parameter| parameter.tensor.requires_grad()) {
        let (rule, scope) = (rule.clone(), parameter.scope);
        let mut state = None;
        parameter.tensor.on_grad_ready(move |tensor| {
            let Some(grad) = tensor.grad() else {
                return Ok(());
            };
            let _mode = no_grad();
            rule.update(&mut [Update { parameter: tensor, scope, grad, state: &mut state }])?;
            drop(tensor.take_grad());
            Ok(())
        })?;
    }
    Ok(())
}
