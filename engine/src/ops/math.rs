//! Elementwise functions of one tensor.

use std::sync::Arc;

use crate::autograd::{Gradient, InputGradients, Operation, Recipe, Saved};
use crate::backend::{self, Binary, Unary};
use crate::error::Result;
use crate::tensor::Tensor;

/// What a function's gradient is computed from.
#[derive(Clone, Copy)]
enum Keep {
    Input,
    Result,
}

/// Writes the functions: each with its gradient, and whether that needs the input or the result.
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
    /// eˣ. Keeps its result.
    exp = Unary::Exp, Result Binary::Mul;
    /// The natural logarithm. Keeps its input.
    log = Unary::Log, Input Binary::Div;
    /// The square root. Keeps its result.
    sqrt = Unary::Sqrt, Result Binary::SqrtGrad;
    /// x². Keeps its input.
    square = Unary::Square, Input Binary::SquareGrad;
    /// The hyperbolic tangent. Keeps its result.
    tanh = Unary::Tanh, Result Binary::TanhGrad;
    /// The sine. Keeps its input.
    sin = Unary::Sin, Input Binary::SinGrad;
    /// The cosine. Keeps its input.
    cos = Unary::Cos, Input Binary::CosGrad;
    /// 1 / (1 + e⁻ˣ). Keeps its result.
    sigmoid = Unary::Sigmoid, Result Binary::SigmoidGrad;
    /// x · sigmoid(x). Keeps its input.
    silu = Unary::Silu, Input Binary::SiluGrad;
    /// max(x, 0). Keeps its result, which the next operation often keeps as well.
    relu = Unary::Relu, Result Binary::ReluGrad;
    /// x · Φ(x) with the error function. Keeps its input.
    gelu = Unary::Gelu, Input Binary::GeluGrad;
    /// x · Φ(x) approximated with a hyperbolic tangent. Keeps its input.
    gelu_tanh = Unary::GeluTanh, Input Binary::GeluTanhGrad;
}

impl Tensor {
    fn function(&self, op: &'static str, function: Unary, keep: Keep, gradient: Binary) -> Result<Self> {
        let operation = Operation::begin(op, &[self]);
        self.check_float(op)?;
        let out = self.map(function)?;
        if !Operation::is_recorded(&[self]) {
            return Ok(out);
        }
        match keep {
            Keep::Input => {
                let known = Arc::new(Known { op, function, input: Saved::new(self) });
                let recipe = known.clone();
                Ok(operation.record(out, &[self], |_| OfInput { known, gradient }).with_recipe(&recipe))
            }
            Keep::Result => {
                let result = Saved::memory(&out);
                Ok(operation.record(out, &[self], |_| OfResult { op, result, gradient }))
            }
        }
    }

    /// max(x, 0), in this tensor's memory if it is not shared.
    pub fn into_relu(self) -> Result<Self> {
        if !self.is_free_to_write() {
            return self.relu();
        }
        let operation = Operation::begin("relu", &[&self]);
        self.check_float("relu")?;
        backend::unary(self.view(), Unary::Relu, None)?;
        self.storage().changed();
        let out = self.detach();
        if !Operation::is_recorded(&[&self]) {
            return Ok(out);
        }
        let (result, gradient) = (Saved::memory(&out), Binary::ReluGrad);
        Ok(operation.record(out, &[&self], |_| OfResult { op: "relu", result, gradient }))
    }
}

/// df(x) = f′ · dx, with f′ from the result.
struct OfResult {
    op: &'static str,
    result: Saved,
    gradient: Binary,
}

impl Gradient for OfResult {
    fn backward(self: Box<Self>, grad: Tensor, inputs: &mut InputGradients<'_>) -> Result<()> {
        let result = self.result.take(self.op)?;
        inputs.give(0, grad.into_zip(self.gradient, &result, self.op)?)
    }
}

/// df(x) = f′ · dx, with f′ from the input, of which the result can be recomputed as well.
struct OfInput {
    known: Arc<Known>,
    gradient: Binary,
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

impl Gradient for OfInput {
    fn backward(self: Box<Self>, grad: Tensor, inputs: &mut InputGradients<'_>) -> Result<()> {
        let (op, gradient) = (self.known.op, self.gradient);
        let input = self.known.input.get(op)?;
        drop(self);
        inputs.give(0, grad.into_zip(gradient, &input, op)?)
    }
}
