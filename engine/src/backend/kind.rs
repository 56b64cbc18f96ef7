//! The kinds of primitives, as plain data for every device.

/// A function of one number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unary {
    /// `scale · x + shift`.
    Affine {
        /// The factor.
        scale: f64,
        /// The term.
        shift: f64,
    },
    /// eˣ.
    Exp,
    /// The natural logarithm.
    Log,
    /// The square root.
    Sqrt,
    /// `scale · √x + shift`.
    AffineSqrt {
        /// The factor.
        scale: f64,
        /// The term.
        shift: f64,
    },
    /// x².
    Square,
    /// The hyperbolic tangent.
    Tanh,
    /// The sine.
    Sin,
    /// The cosine.
    Cos,
    /// 1 / (1 + e⁻ˣ).
    Sigmoid,
    /// x · sigmoid(x) (Hendrycks and Gimpel, 2016).
    Silu,
    /// max(x, 0).
    Relu,
    /// x · Φ(x), with the error function (Hendrycks and Gimpel, 2016).
    Gelu,
    /// The same, approximated with a hyperbolic tangent.
    GeluTanh,
}

/// A function of two numbers. In those named after a gradient, the left is the result's gradient.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Binary {
    /// l + r.
    Add,
    /// l − r.
    Sub,
    /// l · r.
    Mul,
    /// l / r.
    Div,
    /// l + scale · r.
    AddScaled(f64),
    /// l + weight · (r − l).
    Lerp(f64),
    /// −l · r.
    NegMul,
    /// 2 · l · r: the gradient of the square, r its input.
    SquareGrad,
    /// l / 2r, r the square root.
    SqrtGrad,
    /// l · (1 − r²), r the hyperbolic tangent.
    TanhGrad,
    /// l · cos(r), r the sine's input.
    SinGrad,
    /// −l · sin(r), r the cosine's input.
    CosGrad,
    /// l · r · (1 − r), r the sigmoid.
    SigmoidGrad,
    /// r the input.
    SiluGrad,
    /// l where r > 0 or is NaN, r the input or the result.
    ReluGrad,
    /// r the input.
    GeluGrad,
    /// r the input.
    GeluTanhGrad,
}

/// A function of three numbers, the first of which it replaces.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ternary {
    /// keep · o + scale · l · r.
    AddMul {
        /// The factor of what is replaced.
        keep: f64,
        /// The factor of the product.
        scale: f64,
    },
    /// o + scale · l / r.
    AddDiv(f64),
}

/// How random numbers are spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// Evenly from `low` up to but not including `high`.
    Uniform {
        /// The least.
        low: f64,
        /// The bound above.
        high: f64,
    },
    /// The bell curve.
    Normal {
        /// The mean.
        mean: f64,
        /// The standard deviation.
        deviation: f64,
    },
}

/// What attention needs beside its tensors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionSize {
    /// What scores are multiplied with before the softmax.
    pub scale: f64,
    /// Which keys a query sees.
    pub mask: Mask,
}

/// Which keys a query sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mask {
    /// All.
    #[default]
    None,
    /// Those at its own place and before; the first query is at place 0.
    Causal,
}

/// How the window of a convolution or pooling moves over an image of `[channels, height, width]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Height and width of the kernel.
    pub kernel: [usize; 2],
    /// Steps down and to the right.
    pub stride: [usize; 2],
    /// Zeros around the image, above and below, left and right.
    pub padding: [usize; 2],
    /// Height and width of the result.
    pub places: [usize; 2],
    /// The first place, counted row by row.
    pub first: usize,
}

/// How rotary embeddings turn pairs of numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rotation {
    /// Pair `i` of a head of `width` numbers turns by `base^(−2i / width)` with each position.
    pub base: f64,
    /// The position of the first place.
    pub first: usize,
    /// Whether to turn back: the gradient.
    pub back: bool,
}

/// How two numbers compare. Nothing but [`Self::NotEqual`] holds of what is NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// l < r.
    Less,
    /// l ≤ r.
    LessOrEqual,
    /// l > r.
    Greater,
    /// l ≥ r.
    GreaterOrEqual,
    /// l = r.
    Equal,
    /// l ≠ r.
    NotEqual,
}

/// A function of one or two numbers made of straight pieces. Two bits tell its slopes: of one operand −1, 0 or 1; of
/// two operands 0, ½ or 1 each, which add up to 1 unless one of them is NaN: then both are 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Piecewise {
    /// |l|; the slope at 0 is 0.
    Abs,
    /// l, but no less than `low` and no more than `high`; the slope at either is 0.
    Clamp {
        /// The least.
        low: f64,
        /// The most.
        high: f64,
    },
    /// The maximum; both slopes are ½ where the elements are equal.
    Maximum,
    /// The minimum; both slopes are ½ where the elements are equal.
    Minimum,
}

/// Which operand of a [`Piecewise`] function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The only one.
    Only,
    /// The first of two.
    Left,
    /// The second.
    Right,
}

/// Running sums or products along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan {
    /// What is done with all elements so far.
    pub fold: Fold,
    /// Whether a number counts only from the next place on; the first place then has the sum or product of nothing.
    pub exclusive: bool,
    /// Whether the axis is walked from its end.
    pub backwards: bool,
}

/// How numbers become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// Their sum.
    Sum,
    /// Their product.
    Product,
}

/// What a norm's second statistic is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spread {
    /// 1 / deviation.
    Rstd,
    /// The variance.
    Variance {
        /// What is added to it before the root is taken.
        epsilon: f64,
    },
}
