//! Group norm, which normalizes groups of channels of each example.

use std::sync::Arc;

use super::batch_norm::give_affine;
use super::columns::check_groups;
use super::norm::{Known, check_affine};
use crate::autograd::{Gradient, InputGradients, Operation, Saved};
use crate::backend::{self, Binary, Spread};
use crate::tensor::autocast;
use crate::{Error, Result, Shape, Tensor};

const OP: &str = "group_norm";

impl Tensor {
    /// Normalizes each group of channels of each example of this `[batch, channels, …]` over all its positions.
    /// Subtracts its mean, divides by its standard deviation (with `epsilon` added to the variance), multiplies by
    /// `weight` and adds `bias`, one per channel (Wu and He: "Group Normalization", 2018). With one group, this is a
    /// layer norm of whole examples; with as many groups as channels, it is an instance norm. Saves the input, and the
    /// mean and 1 / deviation of each group, from which the result can be recomputed.
    ///
    /// # Errors
    /// Fails if the channels cannot be divided into `groups`, if the shapes or data types do not match, or if memory
    /// runs out.
    pub fn group_norm(&self, groups: usize, weight: Option<&Self>, bias: Option<&Self>, epsilon: f64) -> Result<Self> {
        if let Some(weight) =
            weight.filter(|weight| autocast::of_products().is_some() && weight.dtype() != self.dtype())
        {
            return self.to_dtype(weight.dtype())?.group_norm(groups, Some(weight), bias, epsilon);
        }
        // Input 0 is the tensor; weight and bias follow if they are given.
        let inputs: Vec<&Self> = [self].into_iter().chain(weight).chain(bias).collect();
        let operation = Operation::begin(OP, &inputs);
        check(self, groups, weight, bias)?;
        let input = self.in_order()?;
        let out = self.same_shape()?;
        let mean = Self::empty([self.shape()[0], groups], self.dtype().statistics(), self.device())?;
        let rstd = mean.same_shape()?;
        let by_group = by_lines(&input, mean.elements())?;
        backend::batch_norm_measure(mean.view(), rstd.view(), by_group.view(), None, 0.0, epsilon)?;
        drop(by_group);
        let affine = [weight.map(Self::view), bias.map(Self::view)];
        backend::batch_norm(out.view(), input.view(), [mean.view(), rstd.view()], Spread::Rstd, affine)?;
        let known = || Known {
            op: OP,
            input: Some(Saved::new(&input)),
            mean: Some(Saved::memory(&mean)),
            spread: Saved::memory(&rstd),
            of_channels: Some(Spread::Rstd),
            affine: [weight, bias].map(|parameter| parameter.map(Saved::new)),
        };
        Ok(operation.record_known(out, &inputs, known, GroupNorm))
    }
}

/// Returns a contiguous `tensor` as one example with the given number of channels.
fn by_lines(tensor: &Tensor, channels: usize) -> Result<Tensor> {
    let places = tensor.elements().checked_div(channels).unwrap_or(0);
    tensor.reshaped(&Shape::from([1, channels, places]))
}

fn check(input: &Tensor, groups: usize, weight: Option<&Tensor>, bias: Option<&Tensor>) -> Result<()> {
    input.check_float(OP)?;
    if input.rank() < 2 {
        return Err(Error::shape(OP, input.shape(), "expected [batch, channels, …]"));
    }
    check_groups(OP, input.shape()[1], groups)?;
    let need = "expected a contiguous weight and bias with one element per channel";
    check_affine(OP, input, [weight, bias], input.shape()[1], need)
}

/// With x̂ the normalized group: dw = Σ g·x̂, db = Σ g, and dx = rstd · (g·w − mean(g·w) − x̂ · mean(g·w·x̂)).
struct GroupNorm(Arc<Known>);

impl Gradient for GroupNorm {
    fn backward(self: Box<Self>, grad: Tensor, inputs: &mut InputGradients<'_>) -> Result<()> {
        let mut known = self.0.values()?;
        drop(self);
        let grad = grad.into_order()?;
        give_affine(&known, &grad, Spread::Rstd, inputs)?;
        if !inputs.needs(0) {
            return Ok(());
        }
        let rank = grad.rank();
        let grad = match known.weight.take() {
            Some(weight) => grad.into_zip(Binary::Mul, &by_channel(&weight, rank)?, OP)?,
            None if grad.is_free_to_write() => grad,
            None => grad.copied()?,
        };
        let groups = known.spread.elements();
        let (out, values) = (by_lines(&grad, groups)?, by_lines(known.input(), groups)?);
        backend::batch_norm_backward(out.view(), None, Some(values.view()), known.statistics(), Spread::Rstd, None)?;
        drop(out);
        inputs.give(0, grad)
    }
}

/// Returns one element per channel in a shape that broadcasts to `[batch, channels, …]` of `rank` axes.
fn by_channel(parameter: &Tensor, rank: usize) -> Result<Tensor> {
    let mut lengths = vec![1; rank - 1];
    lengths[0] = parameter.elements();
    parameter.reshaped(&Shape::filled(&lengths))
}
