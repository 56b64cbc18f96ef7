//! Group norm: normalizes groups of channels of each example.

use std::sync::Arc;

use super::columns::check_groups;
use crate::autograd::{Gradient, InputGradients, Operation, Recipe, Saved};
use crate::backend::{self, Binary, Spread};
use crate::error::{Error, Result};
use crate::shape::Shape;
use crate::tensor::{Tensor, autocast};

const OP: &str = "group_norm";

impl Tensor {
    /// Normalizes each group of channels of each example of this `[batch, channels, …]` over all its positions:
    /// subtracts its mean, divides by its standard deviation (with `epsilon` added to the variance), multiplies by
    /// `weight` and adds `bias`, one per channel (Wu and He: "Group Normalization", 2018). With one group it is a layer
    /// norm of whole examples, with as many groups as channels an instance norm. Saves the input, and mean and 1 /
    /// deviation of each group; the result can be recomputed from these.
    ///
    /// # Errors
    ///
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
        backend::group_norm(out.view(), input.view(), [mean.view(), rstd.view()], affine)?;
        let known = || Known {
            input: Saved::new(&input),
            statistics: [Saved::memory(&mean), Saved::memory(&rstd)],
            weight: weight.map(Saved::new),
            bias: bias.map(Saved::new),
        };
        Ok(operation.record_known(out, &inputs, known, GroupNorm))
    }
}

/// Returns `tensor`, which is contiguous, as one example with the given number of channels.
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
    for parameter in weight.into_iter().chain(bias) {
        input.check_operand(OP, parameter)?;
        if **parameter.shape() != [input.shape()[1]] || !parameter.is_contiguous() {
            let need = "expected a contiguous weight and bias with one element per channel";
            return Err(Error::shapes(OP, input.shape(), parameter.shape(), need));
        }
    }
    Ok(())
}

/// The tensors saved for backward, from which the result can be recomputed.
struct Known {
    input: Saved,
    statistics: [Saved; 2],
    weight: Option<Saved>,
    bias: Option<Saved>,
}

impl Known {
    fn statistics(&self) -> Result<[Tensor; 2]> {
        let [mean, rstd] = &self.statistics;
        Ok([mean.get(OP)?, rstd.get(OP)?])
    }
}

impl Recipe for Known {
    fn compute(&self) -> Result<Tensor> {
        let (input, statistics) = (self.input.get(OP)?, self.statistics()?);
        let affine = [&self.weight, &self.bias].map(|saved| saved.as_ref().map(|saved| saved.get(OP)).transpose());
        let [weight, bias] = affine;
        let (weight, bias) = (weight?, bias?);
        let out = input.same_shape()?;
        let affine = [weight.as_ref().map(Tensor::view), bias.as_ref().map(Tensor::view)];
        backend::group_norm(out.view(), input.view(), statistics.each_ref().map(Tensor::view), affine)?;
        Ok(out)
    }
}

/// With x̂ the normalized group: dw = Σ g·x̂, db = Σ g, and dx = rstd · (g·w − mean(g·w) − x̂ · mean(g·w·x̂)).
struct GroupNorm(Arc<Known>);

impl Gradient for GroupNorm {
    fn backward(self: Box<Self>, grad: Tensor, inputs: &mut InputGradients<'_>) -> Result<()> {
        let known = &self.0;
        let (input, statistics) = (known.input.get(OP)?, known.statistics()?);
        let weight = known.weight.as_ref().map(|weight| weight.get(OP)).transpose()?;
        let has_bias = known.bias.is_some();
        drop(self);
        let grad = grad.into_order()?;
        let of_bias = if weight.is_some() { 2 } else { 1 };
        let wanted = [(weight.is_some(), 1), (has_bias, of_bias)].map(|(is, place)| is && inputs.needs(place));
        if wanted.contains(&true) {
            let mut sum = |(wanted, place): (bool, usize)| -> Result<Option<Tensor>> {
                wanted.then(|| inputs.take_sum_or_zeros(place, &grad)).transpose()
            };
            let sums = [sum((wanted[0], 1))?, sum((wanted[1], of_bias))?];
            let views = sums.each_ref().map(|sum| sum.as_ref().map(Tensor::view));
            let known = statistics.each_ref().map(Tensor::view);
            backend::group_norm_backward_affine(grad.view(), input.view(), known, views)?;
            for (sum, place) in sums.into_iter().zip([1, of_bias]) {
                if let Some(sum) = sum {
                    inputs.give(place, sum)?;
                }
            }
        }
        if !inputs.needs(0) {
            return Ok(());
        }
        let grad = match weight {
            Some(weight) => grad.into_zip(Binary::Mul, &by_channel(&weight, input.rank())?, OP)?,
            None if grad.is_free_to_write() => grad,
            None => grad.copied()?,
        };
        let groups = statistics[0].elements();
        let (out, values) = (by_lines(&grad, groups)?, by_lines(&input, groups)?);
        let statistics = statistics.each_ref().map(Tensor::view);
        backend::batch_norm_backward(out.view(), None, Some(values.view()), statistics, Spread::Rstd, None)?;
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
