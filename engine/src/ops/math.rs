//! Math: functions of one number, applied to every element.

use crate::autograd::{Gradient, InputGradients, Operation, Saved};
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
        let operation = Operation::begin(op);
        self.check_float(op)?;
        let out = self.map(function)?;
        let result = out.detach();
        Ok(operation.record(out, &[self], |_| Function {
            op,
            kept: match keep {
                Keep::Input => Saved::new(self),
                Keep::Result => Saved::new(&result),
            },
            gradient,
        }))
    }

    /// max(x, 0), in this tensor's memory if nobody else holds it.
    pub fn into_relu(self) -> Result<Self> {
        if !self.is_free_to_write() {
            return self.relu();
        }
        let operation = Operation::begin("relu");
        self.check_float("relu")?;
        backend::unary(self.view(), Unary::Relu, None)?;
        let out = self.detach();
        let kept = out.detach();
        let gradient = Binary::ReluGrad;
        Ok(operation.record(out, &[&self], |_| Function { op: "relu", kept: Saved::new(&kept), gradient }))
    }
}

/// df(x) = f′ · dx, with f′ from the input or the result.
struct Function {
    op: &'static str,
    kept: Saved,
    gradient: Binary,
}

impl Gradient for Function {
    fn backward(self: Box<Self>, grad: Tensor, inputs: &mut InputGradients<'_>) -> Result<()> {
        let kept = self.kept.take(self.op)?;
        inputs.give(0, grad.into_zip(self.gradient, &kept, self.op)?)
    }
}
