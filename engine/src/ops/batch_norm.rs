//! Batch norm: normalizes channels over all examples and positions.

use std::sync::Arc;

use crate::autograd::{Gradient, InputGradients, Operation, Recipe, Saved};
use crate::backend::{self, Spread, View};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// The source of a batch norm's statistics.
#[derive(Clone, Copy, Debug)]
pub enum BatchStatistics<'a> {
    /// The batch itself.
    Batch,
    /// The batch itself; the running mean and variance are updated in place, by the share `momentum` of the batch's.
    /// They have the input's [statistics type](crate::DType::statistics) and one element per channel.
    Remembered {
        /// The running mean and variance.
        running: [&'a Tensor; 2],
        /// The weight of the batch's statistics in the update; PyTorch's default is 0.1.
        momentum: f64,
    },
    /// The given mean and variance, as in evaluation.
    Given([&'a Tensor; 2]),
}

impl Tensor {
    /// Normalizes each channel of this `[batch, channels, …]` over all examples and positions: subtracts its mean,
    /// divides by its standard deviation (with `epsilon` added to the variance), multiplies by `weight` and adds
    /// `bias`, one per channel (Ioffe, Szegedy: "Batch Normalization", 2015).
    ///
    /// With statistics of the batch, saves the input, and mean and 1 / deviation of each channel; the result can be
    /// recomputed from these. With given statistics, saves these, and the input only if the weight requires a gradient.
    ///
    /// # Errors
    ///
    /// Fails if the shapes or data types do not match, or if memory runs out.
    pub fn batch_norm(
        &self,
        weight: Option<&Self>,
        bias: Option<&Self>,
        statistics: BatchStatistics<'_>,
        epsilon: f64,
    ) -> Result<Self> {
        let op = "batch_norm";
        // Input 0 is the tensor; weight and bias follow if they are given.
        let inputs: Vec<&Self> = [self].into_iter().chain(weight).chain(bias).collect();
        let operation = Operation::begin(op, &inputs);
        check(self, weight, bias, statistics)?;
        let input = self.in_order()?;
        let out = self.same_shape()?;
        let (known, spread, of_batch) = match statistics {
            BatchStatistics::Given(given) => (given.map(Self::detach), Spread::Variance { epsilon }, false),
            BatchStatistics::Batch => (measure(&input, None, 0.0, epsilon)?, Spread::Rstd, true),
            BatchStatistics::Remembered { running, momentum } => {
                (measure(&input, Some(running), momentum, epsilon)?, Spread::Rstd, true)
            }
        };
        let affine = [weight.map(Self::view), bias.map(Self::view)];
        backend::batch_norm(out.view(), input.view(), known.each_ref().map(Self::view), spread, affine)?;
        let keeps_input = of_batch || weight.is_some_and(Self::requires_grad);
        let known = || Known {
            input: keeps_input.then(|| Saved::new(&input)),
            statistics: known.each_ref().map(Saved::memory),
            spread,
            weight: weight.map(Saved::new),
            bias: bias.map(Saved::new),
        };
        let gradient = |known| BatchNorm { known, of_batch };
        Ok(if keeps_input {
            operation.record_known(out, &inputs, known, gradient)
        } else {
            operation.record(out, &inputs, |_| gradient(Arc::new(known())))
        })
    }
}

/// The mean and 1 / deviation of each channel.
fn measure(input: &Tensor, running: Option<[&Tensor; 2]>, momentum: f64, epsilon: f64) -> Result<[Tensor; 2]> {
    let mean = Tensor::empty(input.shape()[1], input.dtype().statistics(), input.device())?;
    let rstd = mean.same_shape()?;
    if let Some(running) = running {
        running.iter().try_for_each(|running| running.begin_change("batch_norm"))?;
    }
    let running = running.map(|running| running.map(Tensor::view));
    backend::batch_norm_measure(mean.view(), rstd.view(), input.view(), running, momentum, epsilon)?;
    Ok([mean, rstd])
}

fn check(
    input: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    statistics: BatchStatistics<'_>,
) -> Result<()> {
    let op = "batch_norm";
    input.check_float(op)?;
    if input.rank() < 2 {
        return Err(Error::shape(op, input.shape(), "expected [batch, channels, …]"));
    }
    let channels = input.shape()[1];
    let is_one_a_channel = |tensor: &Tensor| {
        let need = "expected contiguous weight, bias and statistics of shape [channels]";
        let fits = **tensor.shape() == [channels] && tensor.is_contiguous();
        if fits { Ok(()) } else { Err(Error::shapes(op, input.shape(), tensor.shape(), need)) }
    };
    for parameter in weight.into_iter().chain(bias) {
        input.check_operand(op, parameter)?;
        is_one_a_channel(parameter)?;
    }
    let given = match statistics {
        BatchStatistics::Batch => None,
        BatchStatistics::Remembered { running, .. } => Some(running),
        BatchStatistics::Given(given) => Some(given),
    };
    for statistic in given.into_iter().flatten() {
        input.check_device(op, statistic)?;
        is_one_a_channel(statistic)?;
        if statistic.dtype() != input.dtype().statistics() {
            let need = "expected running statistics of dtype f64 for an f64 input, else f32";
            return Err(Error::DType { op, found: statistic.dtype(), need });
        }
    }
    let of_batch = !matches!(statistics, BatchStatistics::Given(_));
    let numbers = input.elements().checked_div(channels).unwrap_or(2);
    if of_batch && numbers < 2 {
        let need = "a channel's variance needs at least 2 elements; use a larger batch, or running statistics";
        return Err(Error::shape(op, input.shape(), need));
    }
    Ok(())
}

/// The tensors saved for backward, from which the result can be recomputed if the input is among them.
struct Known {
    input: Option<Saved>,
    statistics: [Saved; 2],
    spread: Spread,
    weight: Option<Saved>,
    bias: Option<Saved>,
}

impl Known {
    fn statistics(&self) -> Result<[Tensor; 2]> {
        let [mean, spread] = &self.statistics;
        Ok([mean.get("batch_norm")?, spread.get("batch_norm")?])
    }
}

fn get(saved: Option<&Saved>) -> Result<Option<Tensor>> {
    saved.map(|saved| saved.get("batch_norm")).transpose()
}

impl Recipe for Known {
    fn compute(&self) -> Result<Tensor> {
        let input = get(self.input.as_ref())?.expect("only what keeps its input has a recipe");
        let (statistics, weight, bias) = (self.statistics()?, get(self.weight.as_ref())?, get(self.bias.as_ref())?);
        let out = input.same_shape()?;
        let affine = [weight.as_ref().map(Tensor::view), bias.as_ref().map(Tensor::view)];
        backend::batch_norm(out.view(), input.view(), statistics.each_ref().map(Tensor::view), self.spread, affine)?;
        Ok(out)
    }
}

/// With x̂ the normalised channel: dw = Σ g·x̂, db = Σ g, and dx = w · rstd · (g − mean(g) − x̂ · mean(g·x̂)); with
/// given statistics dx = w · rstd · g.
struct BatchNorm {
    known: Arc<Known>,
    of_batch: bool,
}

impl Gradient for BatchNorm {
    fn backward(self: Box<Self>, grad: Tensor, inputs: &mut InputGradients<'_>) -> Result<()> {
        let Self { known, of_batch } = *self;
        let (input, statistics, spread) = (get(known.input.as_ref())?, known.statistics()?, known.spread);
        let weight = get(known.weight.as_ref())?;
        let has_bias = known.bias.is_some();
        drop(known);
        let grad = grad.into_order()?;
        let statistics = statistics.each_ref().map(Tensor::view);
        let values = input.as_ref().map(Tensor::view);
        let of_bias = if weight.is_some() { 2 } else { 1 };
        let wanted = [(weight.is_some(), 1), (has_bias, of_bias)].map(|(is, place)| is && inputs.needs(place));
        if wanted.contains(&true) {
            let mut sum = |(wanted, place): (bool, usize)| -> Result<Option<Tensor>> {
                wanted.then(|| inputs.take_sum_or_zeros(place, &grad)).transpose()
            };
            let sums = [sum((wanted[0], 1))?, sum((wanted[1], of_bias))?];
            let views: [Option<View<'_>>; 2] = sums.each_ref().map(|sum| sum.as_ref().map(Tensor::view));
            backend::batch_norm_backward_affine(grad.view(), values, statistics, spread, views)?;
            for (sum, place) in sums.into_iter().zip([1, of_bias]) {
                if let Some(sum) = sum {
                    inputs.give(place, sum)?;
                }
            }
        }
        if !inputs.needs(0) {
            return Ok(());
        }
        let (values, weight) = (values.filter(|_| of_batch), weight.as_ref().map(Tensor::view));
        let out = grad.rewritten(Tensor::is_free_to_write, |out, grad| {
            backend::batch_norm_backward(out, grad, values, statistics, spread, weight)
        })?;
        inputs.give(0, out)
    }
}
