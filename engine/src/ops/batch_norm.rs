//! Batch norm, which normalizes channels over all examples and positions.

use std::sync::Arc;

use super::norm::{Known, Values, check_affine};
use crate::autograd::{Gradient, InputGradients, Operation, Saved};
use crate::backend::{self, Spread};
use crate::{Error, Result, Tensor};

const OP: &str = "batch_norm";

/// The source of a batch norm's statistics.
#[derive(Clone, Copy, Debug)]
pub enum BatchStatistics<'a> {
    /// The batch itself.
    Batch,
    /// The batch itself, whose statistics also update the running mean and variance in place, with weight `momentum`.
    /// The running statistics have the input's [statistics type](crate::DType::statistics) and one element per channel.
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
    /// Normalizes each channel of this `[batch, channels, …]` over all examples and positions. Subtracts its mean,
    /// divides by its standard deviation (with `epsilon` added to the variance), multiplies by `weight` and adds
    /// `bias`, one per channel (Ioffe, Szegedy: "Batch Normalization", 2015).
    ///
    /// With statistics of the batch, saves the input, and the mean and 1 / deviation of each channel, from which the
    /// result can be recomputed. With given statistics, saves these, and saves the input only if the weight requires a
    /// gradient.
    ///
    /// # Errors
    /// Fails if the shapes or data types do not match, or if memory runs out.
    pub fn batch_norm(
        &self,
        weight: Option<&Self>,
        bias: Option<&Self>,
        statistics: BatchStatistics<'_>,
        epsilon: f64,
    ) -> Result<Self> {
        // Input 0 is the tensor; weight and bias follow if they are given.
        let inputs: Vec<&Self> = [self].into_iter().chain(weight).chain(bias).collect();
        let operation = Operation::begin(OP, &inputs);
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
        let [mean, spread_of] = &known;
        let known = || Known {
            op: OP,
            input: keeps_input.then(|| Saved::new(&input)),
            mean: Some(Saved::memory(mean)),
            spread: Saved::memory(spread_of),
            of_channels: Some(spread),
            affine: [weight, bias].map(|parameter| parameter.map(Saved::new)),
        };
        let gradient = |known| BatchNorm { known, of_batch };
        Ok(if keeps_input {
            operation.record_known(out, &inputs, known, gradient)
        } else {
            operation.record(out, &inputs, |_| gradient(Arc::new(known())))
        })
    }
}

/// Returns the mean and 1 / deviation of each channel, and updates `running` if given.
fn measure(input: &Tensor, running: Option<[&Tensor; 2]>, momentum: f64, epsilon: f64) -> Result<[Tensor; 2]> {
    let mean = Tensor::empty(input.shape()[1], input.dtype().statistics(), input.device())?;
    let rstd = mean.same_shape()?;
    if let Some(running) = running {
        running.iter().try_for_each(|running| running.begin_change(OP))?;
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
    input.check_float(OP)?;
    if input.rank() < 2 {
        return Err(Error::shape(OP, input.shape(), "expected [batch, channels, …]"));
    }
    let (channels, need) = (input.shape()[1], "expected contiguous weight, bias and statistics of shape [channels]");
    check_affine(OP, input, [weight, bias], channels, need)?;
    let given = match statistics {
        BatchStatistics::Batch => None,
        BatchStatistics::Remembered { running, .. } => Some(running),
        BatchStatistics::Given(given) => Some(given),
    };
    for statistic in given.into_iter().flatten() {
        input.check_device(OP, statistic)?;
        if **statistic.shape() != [channels] || !statistic.is_contiguous() {
            return Err(Error::shapes(OP, input.shape(), statistic.shape(), need));
        }
        if statistic.dtype() != input.dtype().statistics() {
            let need = "expected running statistics of dtype f64 for an f64 input, otherwise f32";
            return Err(Error::DType { op: OP, found: statistic.dtype(), need });
        }
    }
    let of_batch = !matches!(statistics, BatchStatistics::Given(_));
    let numbers = input.elements().checked_div(channels).unwrap_or(2);
    if of_batch && numbers < 2 {
        let need = "a channel's variance needs at least 2 elements; use a larger batch, or running statistics";
        return Err(Error::shape(OP, input.shape(), need));
    }
    Ok(())
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
        let spread = known.of_channels.expect("the channel statistics are missing");
        let values = known.values()?;
        drop(known);
        let grad = grad.into_order()?;
        give_affine(&values, &grad, spread, inputs)?;
        if !inputs.needs(0) {
            return Ok(());
        }
        let input = values.input.as_ref().filter(|_| of_batch).map(Tensor::view);
        let (statistics, weight) = (values.statistics(), values.weight.as_ref().map(Tensor::view));
        let out = grad.rewritten(Tensor::is_free_to_write, |out, grad| {
            backend::batch_norm_backward(out, grad, input, statistics, spread, weight)
        })?;
        inputs.give(0, out)
    }
}

pub(super) fn give_affine(
    known: &Values,
    grad: &Tensor,
    spread: Spread,
    inputs: &mut InputGradients<'_>,
) -> Result<()> {
    let take = |inputs: &mut InputGradients<'_>, place| Ok((inputs.take_sum_or_zeros(place, grad)?, 1.0));
    known.give_affine(inputs, take, |sums, _| {
        let input = known.input.as_ref().map(Tensor::view);
        backend::batch_norm_backward_affine(grad.view(), input, known.statistics(), spread, sums)
    })
}
