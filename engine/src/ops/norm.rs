//! Layer norm and RMS norm, which normalize rows to variance 1 around their mean or around 0.

use std::sync::Arc;

use crate::autograd::{Gradient, InputGradients, Operation, Recipe, Saved};
use crate::backend::{self, Spread, View};
use crate::tensor::autocast;
use crate::{Error, Result, Tensor};

const RMS_NORM: &str = "rms_norm";

impl Tensor {
    /// Normalizes each row of the last axis. Subtracts its mean, divides by its standard deviation (with `epsilon`
    /// added to the variance), multiplies by `weight` and adds `bias`, both of the last axis's length (Ba, Kiros,
    /// Hinton: "Layer Normalization", 2016). Saves the input, and the mean and 1 / deviation of each row.
    ///
    /// # Errors
    /// Fails if the shapes or data types do not match, or if memory runs out.
    pub fn layer_norm(&self, weight: Option<&Self>, bias: Option<&Self>, epsilon: f64) -> Result<Self> {
        self.normalized("layer_norm", [weight, bias], epsilon)
    }

    /// Divides each row of the last axis by its root mean square (with `epsilon` added to the mean square), and
    /// multiplies by `weight` of the last axis's length (Zhang and Sennrich: "Root Mean Square Layer Normalization",
    /// 2019). Saves the input, and one element per row in the statistics type, from which the result can be recomputed.
    /// The input's gradient overwrites the result's gradient if its memory is not shared.
    ///
    /// # Errors
    /// Fails if the shapes or data types do not match, or if memory runs out.
    pub fn rms_norm(&self, weight: Option<&Self>, epsilon: f64) -> Result<Self> {
        self.normalized(RMS_NORM, [weight, None], epsilon)
    }

    fn normalized(&self, op: &'static str, [weight, bias]: [Option<&Self>; 2], epsilon: f64) -> Result<Self> {
        if let Some(weight) =
            weight.filter(|weight| autocast::of_products().is_some() && weight.dtype() != self.dtype())
        {
            return self.to_dtype(weight.dtype())?.normalized(op, [Some(weight), bias], epsilon);
        }
        // Input 0 is the tensor; weight and bias follow if they are given.
        let inputs: Vec<&Self> = [self].into_iter().chain(weight).chain(bias).collect();
        let operation = Operation::begin(op, &inputs);
        self.check_float(op)?;
        let Some((&width, rows)) = self.shape().split_last() else {
            return Err(Error::shape(op, self.shape(), "expected at least one axis to normalize over"));
        };
        let need = "expected a weight and a bias with the length of the last axis";
        check_affine(op, self, [weight, bias], width, need)?;
        let statistics = crate::Shape::filled(rows);
        let input = self.in_order()?;
        let out = self.same_shape()?;
        let statistic = || Self::empty(statistics, self.dtype().statistics(), self.device());
        let mean = (op != RMS_NORM).then(statistic).transpose()?;
        let rstd = statistic()?;
        let affine = [weight.map(Self::view), bias.map(Self::view)];
        let views = (mean.as_ref().map(Self::view), rstd.view());
        backend::layer_norm(out.view(), views.0, views.1, input.view(), affine, epsilon)?;
        let known = || Known {
            op,
            input: Some(Saved::new(&input)),
            mean: mean.as_ref().map(Saved::new),
            spread: Saved::new(&rstd),
            of_channels: None,
            affine: [weight, bias].map(|parameter| parameter.map(Saved::new)),
        };
        Ok(operation.record_known(out, &inputs, known, LayerNorm))
    }
}

/// Fails unless weight and bias have the dtype and device of `input`, are contiguous and have shape `[length]`.
pub(super) fn check_affine(
    op: &'static str,
    input: &Tensor,
    affine: [Option<&Tensor>; 2],
    length: usize,
    need: &'static str,
) -> Result<()> {
    for parameter in affine.into_iter().flatten() {
        input.check_operand(op, parameter)?;
        if **parameter.shape() != [length] || !parameter.is_contiguous() {
            return Err(Error::shapes(op, input.shape(), parameter.shape(), need));
        }
    }
    Ok(())
}

/// The tensors that a norm saves for backward. Its result can be recomputed from them if they include the input.
pub(super) struct Known {
    pub(super) op: &'static str,
    pub(super) input: Option<Saved>,
    /// The mean that is subtracted, if any.
    pub(super) mean: Option<Saved>,
    pub(super) spread: Saved,
    /// The meaning of `spread` for norms of channels or groups; `None` for norms of rows, where it is 1 / deviation.
    pub(super) of_channels: Option<Spread>,
    /// Weight and bias.
    pub(super) affine: [Option<Saved>; 2],
}

/// The tensors saved by a norm, except the bias.
pub(super) struct Values {
    pub(super) input: Option<Tensor>,
    pub(super) mean: Option<Tensor>,
    pub(super) spread: Tensor,
    pub(super) weight: Option<Tensor>,
    has_bias: bool,
}

impl Known {
    fn get(&self, saved: Option<&Saved>) -> Result<Option<Tensor>> {
        saved.map(|saved| saved.get(self.op)).transpose()
    }

    pub(super) fn values(&self) -> Result<Values> {
        let [weight, bias] = &self.affine;
        Ok(Values {
            input: self.get(self.input.as_ref())?,
            mean: self.get(self.mean.as_ref())?,
            spread: self.spread.get(self.op)?,
            weight: self.get(weight.as_ref())?,
            has_bias: bias.is_some(),
        })
    }
}

impl Recipe for Known {
    fn compute(&self) -> Result<Tensor> {
        let known = self.values()?;
        let bias = self.get(self.affine[1].as_ref())?;
        let (input, out) = (known.input().view(), known.input().same_shape()?);
        let affine = [known.weight.as_ref().map(Tensor::view), bias.as_ref().map(Tensor::view)];
        match self.of_channels {
            Some(spread) => backend::batch_norm(out.view(), input, known.statistics(), spread, affine)?,
            None => {
                let mean = known.mean.as_ref().map(Tensor::view);
                backend::layer_norm_again(out.view(), mean, known.spread.view(), input, affine)?;
            }
        }
        Ok(out)
    }
}

impl Values {
    pub(super) fn input(&self) -> &Tensor {
        self.input.as_ref().expect("the norm did not keep its input")
    }

    pub(super) fn statistics(&self) -> [View<'_>; 2] {
        [self.mean.as_ref().expect("the mean of the channels is missing").view(), self.spread.view()]
    }

    /// Passes on the gradients of weight and bias, if they are required. `take` returns a tensor to which a gradient is
    /// added, and the factor of its previous contents. `add` adds both gradients.
    pub(super) fn give_affine(
        &self,
        inputs: &mut InputGradients<'_>,
        take: impl Fn(&mut InputGradients<'_>, usize) -> Result<(Tensor, f64)>,
        add: impl FnOnce([Option<View<'_>>; 2], [f64; 2]) -> Result<()>,
    ) -> Result<()> {
        let has_weight = self.weight.is_some();
        let places = [(has_weight, 1), (self.has_bias, 1 + usize::from(has_weight))];
        let places = places.map(|(is, place)| (is && inputs.needs(place)).then_some(place));
        if places == [None; 2] {
            return Ok(());
        }
        let (mut sums, mut keep) = ([None, None], [0.0; 2]);
        for (kind, place) in places.into_iter().enumerate() {
            if let Some(place) = place {
                let (sum, kept) = take(inputs, place)?;
                (sums[kind], keep[kind]) = (Some(sum), kept);
            }
        }
        add(sums.each_ref().map(|sum| sum.as_ref().map(Tensor::view)), keep)?;
        for (sum, place) in sums.into_iter().zip(places) {
            if let (Some(sum), Some(place)) = (sum, place) {
                inputs.give(place, sum)?;
            }
        }
        Ok(())
    }
}

/// With the normalized row x̂, dx = rstd · (g·w − mean(g·w) − x̂ · mean(g·w·x̂)), dw = Σ g·x̂, db = Σ g. For an RMS
/// norm, dx = rstd · (g·w − x̂ · mean(g·w·x̂)).
struct LayerNorm(Arc<Known>);

impl Gradient for LayerNorm {
    fn backward(self: Box<Self>, grad: Tensor, inputs: &mut InputGradients<'_>) -> Result<()> {
        let known = self.0.values()?;
        drop(self);
        let grad = grad.into_order()?;
        let (mean, rstd, input) = (known.mean.as_ref().map(Tensor::view), known.spread.view(), known.input().view());
        let take = |inputs: &mut InputGradients<'_>, place| inputs.take_sum_or_new(place, &grad);
        known.give_affine(inputs, take, |sums, keep| {
            backend::layer_norm_backward_affine(grad.view(), mean, rstd, input, sums, keep)
        })?;
        if !inputs.needs(0) {
            return Ok(());
        }
        let weight = known.weight.as_ref().map(Tensor::view);
        let out = grad.rewritten(Tensor::is_free_to_write, |out, grad| {
            backend::layer_norm_backward(out, grad, mean, rstd, input, weight)
        })?;
        inputs.give(0, out)
    }
}
