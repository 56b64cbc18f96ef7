//! Gradient clipping. Norms and factors are computed on the device, and nothing is read back to the host.

use super::in_backward::demand_gradients_left;
use super::pending::run_each;
use super::rule::demand;
use crate::autograd::Operation;
use crate::backend::{self, Call};
use crate::nn::Parameter;
use crate::{DType, Error, Result, Tensor};

/// Computes the norm of all gradients as if they were one vector, which is (Σ |g|^order)^(1/order), or the largest
/// magnitude for an infinite order. Order 2 is the Euclidean norm. The result is one f64 on the device, which is the
/// only memory allocated. It is 0 if there are no gradients.
///
/// # Errors
/// Fails if `order` is not above 0, if there are no parameters, if a gradient is on another device than the first
/// parameter, or if an optimizer [in backward](super::run_in_backward) has already used up gradients.
pub fn grad_norm(parameters: &[Parameter], order: f64) -> Result<Tensor> {
    norm("grad_norm", parameters, order)
}

/// Multiplies all gradients by `largest / (norm + 10⁻⁶)` if that is below 1, where `norm` is their [norm](grad_norm) of
/// order 2, and returns `norm`. This is the arithmetic of PyTorch's `torch.nn.utils.clip_grad_norm_`.
///
/// # Errors
/// Fails if `largest` is below 0. See also [`grad_norm`].
pub fn clip_grad_norm(parameters: &[Parameter], largest: f64) -> Result<Tensor> {
    clip_grad_norm_of(parameters, largest, 2.0)
}

/// Like [`clip_grad_norm`], with the norm of order `order`.
///
/// # Errors
/// See [`clip_grad_norm`].
pub fn clip_grad_norm_of(parameters: &[Parameter], largest: f64, order: f64) -> Result<Tensor> {
    let op = "clip_grad_norm";
    demand(op, largest >= 0.0, || format!("invalid maximum norm {largest}: expected 0 or more"))?;
    let total = norm(op, parameters, order)?;
    let _operation = Operation::begin("clip_grad_norm.scale", &[]);
    run_each(gradients(parameters).iter().map(|grad| {
        grad.begin_change(op)?;
        Ok(Call::ClipToNorm(grad.view(), total.view(), largest))
    }))?;
    Ok(total)
}

/// Clamps every element of every gradient to the range from `-largest` to `largest`, like PyTorch's
/// `torch.nn.utils.clip_grad_value_`.
///
/// # Errors
/// Fails if `largest` is below 0, or if an optimizer [in backward](super::run_in_backward) has already used up
/// gradients.
pub fn clip_grad_value(parameters: &[Parameter], largest: f64) -> Result<()> {
    let op = "clip_grad_value";
    demand(op, largest >= 0.0, || format!("invalid maximum value {largest}: expected 0 or more"))?;
    demand_gradients_left(op, parameters)?;
    let _operation = Operation::begin(op, &[]);
    run_each(gradients(parameters).iter().map(|grad| {
        grad.begin_change(op)?;
        Ok(Call::Clamp(grad.view(), -largest, largest))
    }))
}

fn norm(op: &'static str, parameters: &[Parameter], order: f64) -> Result<Tensor> {
    demand(op, order > 0.0, || format!("invalid order of the norm {order}: expected a number above 0, such as 2"))?;
    let what = || "no parameters given: expected the parameters of the model".to_owned();
    let first = parameters.first().ok_or_else(|| Error::Setting { op, what: what() })?;
    demand_gradients_left(op, parameters)?;
    let _operation = Operation::begin(op, &[]);
    let total = Tensor::zeros((), DType::F64, first.tensor.device())?;
    run_each(gradients(parameters).iter().map(|grad| {
        total.check_device(op, grad)?;
        Ok(Call::AddNorm(total.view(), grad.view(), order))
    }))?;
    backend::finish_norm(total.view(), order)?;
    Ok(total)
}

pub(super) fn gradients(parameters: &[Parameter]) -> Vec<Tensor> {
    parameters.iter().filter_map(|parameter| parameter.tensor.grad()).collect()
}
