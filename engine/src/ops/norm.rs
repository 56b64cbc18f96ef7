//! Layer norm: normalizes rows to mean 0 and variance 1.

use std::sync::Arc;

use crate::autograd::{Gradient, InputGradients, Operation, Recipe, Saved};
use crate::backend;
use crate::error::{Error, Result};
use crate::tensor::{Tensor, autocast};

impl Tensor {
    /// Normalizes each row of the last axis: subtracts its mean, divides by its standard deviation (with `epsilon`
    /// added to the variance), multiplies by `weight` and adds `bias`, both of the last axis's length (Ba, Kiros,
    /// Hinton: "Layer Normalization", 2016). Saves the input, and mean and 1 / deviation of each row.
    ///
    /// # Errors
    ///
    /// Fails if the shapes or data types do not match, or if memory runs out.
    pub fn layer_norm(&self, weight: Option<&Self>, bias: Option<&Self>, epsilon: f64) -> Result<Self> {
        let op = "layer_norm";
        if let Some(weight) =
            weight.filter(|weight| autocast::of_products().is_some() && weight.dtype() != self.dtype())
        {
            return self.to_dtype(weight.dtype())?.layer_norm(Some(weight), bias, epsilon);
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
        let mean = Self::empty(statistics, self.dtype().statistics(), self.device())?;
        let rstd = mean.same_shape()?;
        let affine = [weight.map(Self::view), bias.map(Self::view)];
        backend::layer_norm(out.view(), mean.view(), rstd.view(), input.view(), affine, epsilon)?;
        let known = || Known {
            input: Saved::new(&input),
            statistics: [Saved::new(&mean), Saved::new(&rstd)],
            weight: weight.map(Saved::new),
            bias: bias.map(Saved::new),
        };
        Ok(operation.record_known(out, &inputs, known, LayerNorm))
    }
}

/// The tensors saved for backward, from which the result can be recomputed.
struct Known {
    input: Saved,
    statistics: [Saved; 2],
    weight: Option<Saved>,
    bias: Option<Saved>,
}

impl Recipe for Known {
    fn compute(&self) -> Result<Tensor> {
        let op = "layer_norm";
        let (input, mean, rstd) = (self.input.get(op)?, self.statistics[0].get(op)?, self.statistics[1].get(op)?);
        let weight = self.weight.as_ref().map(|weight| weight.get(op)).transpose()?;
        let bias = self.bias.as_ref().map(|bias| bias.get(op)).transpose()?;
        let out = input.same_shape()?;
        let affine = [weight.as_ref().map(Tensor::view), bias.as_ref().map(Tensor::view)];
        backend::layer_norm_again(out.view(), [mean.view(), rstd.view()], input.view(), affine)?;
        Ok(out)
    }
}

/// With x̂ the normalised row: dx = rstd · (g·w − mean(g·w) − x̂ · mean(g·w·x̂)), dw = Σ g·x̂, db = Σ g.
struct LayerNorm(Arc<Known>);

impl Gradient for LayerNorm {
    fn backward(self: Box<Self>, grad: Tensor, inputs: &mut InputGradients<'_>) -> Result<()> {
        let op = "layer_norm";
        let known = &self.0;
        let (input, mean, rstd) = (known.input.get(op)?, known.statistics[0].get(op)?, known.statistics[1].get(op)?);
        let weight = known.weight.as_ref().map(|weight| weight.get(op)).transpose()?;
        let has_bias = known.bias.is_some();
        drop(self);
        let statistics = [mean.view(), rstd.view()];
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
            backend::layer_norm_backward_affine(grad.view(), statistics, input.view(), views, keep)?;
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
            backend::layer_norm_backward(out, grad, statistics, input.view(), weight)
        })?;
        inputs.give(0, out)
    }
}
