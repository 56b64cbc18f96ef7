//! Gradient clipping. Nothing is read back to the host: factors are computed on the device.

use super::in_backward::demand_gradients_left;
use super::pending::run_each;
use super::rule::demand;
use crate::autograd::Operation;
use crate::backend::{self, Call};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::nn::Parameter;
use crate::tensor::Tensor;

/// The norm of all gradients as if they were one vector: (Σ |g|^order)^(1/order), or the largest magnitude for an
/// infinite order; 2 is the length. One f64 on the device, the only memory it takes; 0 if there are no gradients.
///
/// Fails if `order` is not above 0, without parameters, and where an optimizer [in
/// backward](super::run_in_backward) has used gradients up.
pub fn grad_norm(parameters: &[Parameter], order: f64) -> Result<Tensor> {
    norm("grad_norm", parameters, order)
}

/// Multiplies all gradients with `largest / norm` where their [norm](grad_norm) of order 2 is above `largest`, and
/// gives that norm. The arithmetic is that of PyTorch's `torch.nn.utils.clip_grad_norm_`: the share is at most 1, and
/// 10⁻⁶ is added to the norm.
///
/// Fails like [`grad_norm`], and if `largest` is below 0.
pub fn clip_grad_norm(parameters: &[Parameter], largest: f64) -> Result<Tensor> {
    clip_grad_norm_of(parameters, largest, 2.0)
}

/// [`clip_grad_norm`] by the norm of another order.
pub fn clip_grad_norm_of(parameters: &[Parameter], largest: f64, order: f64) -> Result<Tensor> {
    let op = "clip_grad_norm";
    demand(op, largest >= 0.0, || format!("the largest norm is {largest}; give 0 or more"))?;
    let total = norm(op, parameters, order)?;
    let _operation = Operation::begin("clip_grad_norm.scale", &[]);
    run_each(gradients(parameters).iter().map(|grad| {
        grad.begin_change(op)?;
        Ok(Call::ClipToNorm(grad.view(), total.view(), largest))
    }))?;
    Ok(total)
}

/// Makes every element of every gradient at least `-largest` and at most `largest`, like PyTorch's
/// `torch.nn.utils.clip_grad_value_`.
///
/// Fails if `largest` is below 0, and where an optimizer [in backward](super::run_in_backward) has used gradients up.
pub fn clip_grad_value(parameters: &[Parameter], largest: f64) -> Result<()> {
    let op = "clip_grad_value";
    demand(op, largest >= 0.0, || format!("the largest value is {largest}; give 0 or more"))?;
    demand_gradients_left(op, parameters)?;
    let _operation = Operation::begin(op, &[]);
    run_each(gradients(parameters).iter().map(|grad| {
        grad.begin_change(op)?;
        Ok(Call::Clamp(grad.view(), -largest, largest))
    }))
}

fn norm(op: &'static str, parameters: &[Parameter], order: f64) -> Result<Tensor> {
    demand(op, order > 0.0, || format!("the order is {order}; give a number above 0: 2 for the length"))?;
    let what = || "no parameters; expected those of the model".to_owned();
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

/// The gradients that there are.
pub(super) fn gradients(parameters: &[Parameter]) -> Vec<Tensor> {
    parameters.iter().filter_map(|parameter| parameter.tensor.grad()).collect()
}
