//! Powers with a constant exponent.

use crate::autograd::{Operation, Recipe, Saved, gradient};
use crate::{Result, Tensor, backend};

impl Tensor {
    /// Returns `self` raised to `exponent`, which is NaN for elements below 0 if the exponent is not an integer. Saves
    /// its input.
    ///
    /// # Errors
    /// Fails if the elements are not floating-point numbers, or if memory runs out.
    pub fn powf(&self, exponent: f64) -> Result<Self> {
        let operation = Operation::begin("powf", &[self]);
        self.check_float("powf")?;
        let out = raise(self, exponent)?;
        let base = || Base { input: Saved::new(self), exponent };
        // d(xⁿ) = n · xⁿ⁻¹ · dx.
        Ok(operation.record_known(out, &[self], base, |known| {
            gradient(move |grad, inputs| {
                let input = known.input.get("powf")?;
                drop(known);
                let out = grad.rewritten(Self::is_free_to_write, |out, grad| {
                    backend::power_backward(out, grad, input.view(), exponent)
                })?;
                inputs.give(0, out)
            })
        }))
    }

    /// Returns `self` raised to an integer, which may be negative. Saves its input.
    ///
    /// # Errors
    /// See [`Self::powf`].
    pub fn powi(&self, exponent: i32) -> Result<Self> {
        self.powf(f64::from(exponent))
    }
}

fn raise(input: &Tensor, exponent: f64) -> Result<Tensor> {
    let out = input.same_shape()?;
    backend::power(out.view(), input.view(), exponent)?;
    Ok(out)
}

struct Base {
    input: Saved,
    exponent: f64,
}

impl Recipe for Base {
    fn compute(&self) -> Result<Tensor> {
        raise(&self.input.get("powf")?, self.exponent)
    }
}
