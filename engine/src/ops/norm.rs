//! Layer norm and RMS norm: normalize rows to variance 1 around their mean, or around 0.

use std::sync::Arc;

use crate::autograd::{Gradient, InputGradients, Operation, Recipe, Saved};
use crate::backend;
use crate::error::{Error, Result};
use crate::tensor::{Tensor, autocast};

/// The operation that subtracts no mean.
const RMS_NORM: &str = "rms_norm";

impl Tensor {
    /// Normalizes each row of the last axis: subtracts its mean, divides by its standard deviation (with `epsilon`
    /// added to the variance), multiplies by `weight` and adds `bias`, both of the last axis's length (Ba, Kiros,
    /// Hinton: "Layer Normalization", 2016). Saves the input, and mean and 1 / deviation of each row.
    ///
    /// # Errors
    ///
    /// Fails if the shapes or data types do not match, or if memory runs out.
    pub fn layer_norm(&self, weight: Option<&Self>, bias: Option<&Self>, epsilon: f64) -> Result<Self> {
        self.normalized("layer_norm", [weight, bias], epsilon)
    }

    /// Divides each row of the last axis by the root of its mean square (with `epsilon` added to the mean), and
    /// multiplies by `weight` of the last axis's length (Zhang and Sennrich: "Root Mean Square Layer Normalization",
    /// 2019). Saves the input, and one element per row in the statistics type; the result can be recomputed from these.
    /// The input's gradient overwrites the result's gradient.
    ///
    /// # Errors
    ///
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
        for parameter in [weight, bias].into_iter().flatten() {
            self.check_operand(op, parameter)?;
            if **parameter.shape() != [width] || !parameter.is_contiguous() {
                return Err(Error::shapes(
                    op,
                    self.shape(),
                    parameter.shape(),
                    "expected a weight and a bias with the length of the last axis",
                ));
            }
        }
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
            input: Saved::new(&input),
            mean: mean.as_ref().map(Saved::new),
            rstd: Saved::new(&rstd),
            weight: weight.map(Saved::new),
            bias: bias.map(Saved::new),
        };
        Ok(operation.record_known(out, &inputs, known, LayerNorm))
    }
}

/// The tensors saved for backward, from which the result can be recomputed.
struct Known {
    op: &'static str,
    input: Saved,
    mean: Option<Saved>,
    rstd: Saved,
    weight: Option<Saved>,
    bias: Option<Saved>,
}

impl Known {
    fn get(&self, saved: Option<&Saved>) -> Result<Option<Tensor>> {
        saved.map(|saved| saved.get(self.op)).transpose()
    }
}

impl Recipe for Known {
    fn compute(&self) -> Result<Tensor> {
        let (input, mean, rstd) = (self.input.get(self.op)?, self.get(self.mean.as_ref())?, self.rstd.get(self.op)?);
        let (weight, bias) = (self.get(self.weight.as_ref())?, self.get(self.bias.as_ref())?);
        let out = input.same_shape()?;
        let affine = [weight.as_ref().map(Tensor::view), bias.as_ref().map(Tensor::view)];
        backend::layer_norm_again(out.view(), mean.as_ref().map(Tensor::view), rstd.view(), input.view(), affine)?;
        Ok(out)
    }
}

/// With x̂ the normalised row: dx = rstd · (g·w − mean(g·w) − x̂ · mean(g·w·x̂)), dw = Σ g·x̂, db = Σ g. Of an RMS
/// norm, dx = rstd · (g·w − x̂ · mean(g·w·x̂)).
struct LayerNorm(Arc<Known>);

impl Gradient for LayerNorm {
    fn backward(self: Box<Self>, grad: Tensor, inputs: &mut InputGradients<'_>) -> Result<()> {
        let known = &self.0;
        let (input, mean) = (known.input.get(known.op)?, known.get(known.mean.as_ref())?);
        let (rstd, weight) = (known.rstd.get(known.op)?, known.get(known.weight.as_ref())?);
        let has_bias = known.bias.is_some();
        drop(self);
        let mean = mean.as_ref().map(Tensor::view);
        let grad = grad.into_order()?;
        let of_weight = 1;
        let of_bias = if weight.is_some() { 2 } else { 1 };
        let wants = [weight.is_some() && inputs.needs(of_weight), has_bias && inputs.needs(of_bias)];
        if wants.contains(&true) {
            let (mut sums, mut keep) = ([None, None], [0.0; 2]);
            for (kind, (wanted, place)) in wants.into_iter().zip([of_weight, of_bias]).enumerate() {
                if wanted {
                    let (sum, kept) = inputs.take_sum_or_new(place, &grad)?;
                    (sums[kind], keep[kind]) = (Some(sum), kept);
                }
            }
            let views = [sums[0].as_ref().map(Tensor::view), sums[1].as_ref().map(Tensor::view)];
            backend::layer_norm_backward_affine(grad.view(), mean, rstd.view(), input.view(), views, keep)?;
            for (sum, place) in sums.into_iter().zip([of_weight, of_bias]) {
                if let Some(sum) = sum {
                    inputs.give(place, sum)?;
                }
            }
        }
        if !inputs.needs(0) {
            return Ok(());
        }
        let weight = weight.as_ref().map(Tensor::view);
        let out = grad.rewritten(Tensor::is_free_to_write, |out, grad| {
            backend::layer_norm_backward(out, grad, mean, rstd.view(), input.view(), weight)
        })?;
        inputs.give(0, out)
    }
}
