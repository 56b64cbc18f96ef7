//! Elementwise functions of one tensor.

use crate::autograd::{Gradient, Operation, Recipe, Saved, gradient};
use crate::backend::{self, Binary, Unary};
use crate::{Result, Tensor};

#[derive(Clone, Copy)]
enum Keep {
    Input,
    Result,
}

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident = $function:expr, $keep:ident $gradient:expr;)+) => {
        impl Tensor {
            $($(#[$doc])*
            pub fn $name(&self) -> Result<Self> {
                self.function(stringify!($name), $function, Keep::$keep, $gradient)
            })+
        }
    };
}

functions! {
    /// Returns eˣ. Saves its result.
    exp = Unary::Exp, Result Binary::Mul;
    /// Returns the natural logarithm. Saves its input.
    log = Unary::Log, Input Binary::Div;
    /// Returns the square root. Saves its result.
    sqrt = Unary::Sqrt, Result Binary::SqrtGrad;
    /// Returns x². Saves its input.
    square = Unary::Square, Input Binary::SquareGrad;
    /// Returns the hyperbolic tangent. Saves its result.
    tanh = Unary::Tanh, Result Binary::TanhGrad;
    /// Returns the sine. Saves its input.
    sin = Unary::Sin, Input Binary::SinGrad;
    /// Returns the cosine. Saves its input.
    cos = Unary::Cos, Input Binary::CosGrad;
    /// Returns 1 / (1 + e⁻ˣ). Saves its result.
    sigmoid = Unary::Sigmoid, Result Binary::SigmoidGrad;
    /// Returns x · sigmoid(x). Saves its input.
    silu = Unary::Silu, Input Binary::SiluGrad;
    /// Returns max(x, 0). Saves its result, which the next operation often saves as well.
    relu = Unary::Relu, Result Binary::ReluGrad;
    /// Returns x · Φ(x), computed with the error function. Saves its input.
    gelu = Unary::Gelu, Input Binary::GeluGrad;
    /// Returns x · Φ(x), approximated with a hyperbolic tangent. Saves its input.
    gelu_tanh = Unary::GeluTanh, Input Binary::GeluTanhGrad;
}

impl Tensor {
    fn function(&self, op: &'static str, function: Unary, keep: Keep, slope: Binary) -> Result<Self> {
        let operation = Operation::begin(op, &[self]);
        self.check_float(op)?;
        let out = self.map(function)?;
        Ok(match keep {
            Keep::Input => {
                let known = || Known { op, function, input: Saved::new(self) };
                operation.record_known(out, &[self], known, |known| {
                    gradient(move |grad, inputs| {
                        let input = known.input.get(op)?;
                        drop(known);
                        inputs.give(0, grad.into_zip(slope, &input, op)?)
                    })
                })
            }
            Keep::Result => {
                let result = out.detach();
                operation.record(out, &[self], |_| of_result(op, Saved::memory(&result), slope))
            }
        })
    }

    /// Returns max(x, 0), in this tensor's memory if it is not shared.
    ///
    /// # Errors
    /// Fails if the elements are not floating-point numbers, or if memory runs out.
    pub fn into_relu(self) -> Result<Self> {
        if !self.is_free_to_write() {
            return self.relu();
        }
        let operation = Operation::begin("relu", &[&self]);
        self.check_float("relu")?;
        backend::unary(self.view(), Unary::Relu, None)?;
        self.storage().changed();
        let result = |_: &[bool]| of_result("relu", Saved::memory(&self), Binary::ReluGrad);
        Ok(operation.record(self.detach(), &[&self], result))
    }
}

/// df(x) = f′ · dx, with f′ computed from the result.
fn of_result(op: &'static str, result: Saved, slope: Binary) -> impl Gradient {
    gradient(move |grad, inputs| {
        let result = result.take(op)?;
        inputs.give(0, grad.into_zip(slope, &result, op)?)
    })
}

struct Known {
    op: &'static str,
    function: Unary,
    input: Saved,
}

impl Recipe for Known {
    fn compute(&self) -> Result<Tensor> {
        self.input.get(self.op)?.map(self.function)
    }
}
