//! The functions and parameters of primitives, as plain data for every device.

/// An elementwise function of one operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unary {
    /// `scale · x + shift`.
    Affine {
        /// Scale.
        scale: f64,
        /// Shift.
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
        /// Scale.
        scale: f64,
        /// Shift.
        shift: f64,
    },
    /// x².
    Square,
    /// The hyperbolic tangent.
    Tanh,
    /// sin x, with x in radians.
    Sin,
    /// cos x, with x in radians.
    Cos,
    /// 1 / (1 + e⁻ˣ).
    Sigmoid,
    /// x · sigmoid(x) (Hendrycks and Gimpel, 2016).
    Silu,
    /// max(x, 0).
    Relu,
    /// x · Φ(x), with the error function (Hendrycks and Gimpel, 2016).
    Gelu,
    /// GELU with the tanh approximation.
    GeluTanh,
}

/// An elementwise function of two operands, l and r. In the `…Grad` functions, l is the gradient of the result.
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
    /// 2 · l · r, the gradient of the square, where r is the input.
    SquareGrad,
    /// l / (2r), where r is the square root.
    SqrtGrad,
    /// l · (1 − r²), where r is the hyperbolic tangent.
    TanhGrad,
    /// l · cos(r), where r is the sine's input.
    SinGrad,
    /// −l · sin(r), where r is the cosine's input.
    CosGrad,
    /// l · r · (1 − r), where r is the sigmoid.
    SigmoidGrad,
    /// The gradient of [`Unary::Silu`], where r is the input.
    SiluGrad,
    /// l where r > 0 or r is NaN, otherwise 0, where r is the input or the result.
    ReluGrad,
    /// The gradient of [`Unary::Gelu`], where r is the input.
    GeluGrad,
    /// The gradient of [`Unary::GeluTanh`], where r is the input.
    GeluTanhGrad,
}

/// An elementwise function of the output o and two operands, l and r, whose result replaces o.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ternary {
    /// keep · o + scale · l · r.
    AddMul {
        /// Factor of the output's old value.
        keep: f64,
        /// Factor of the product.
        scale: f64,
    },
    /// o + scale · l / r.
    AddDiv(f64),
}

/// A distribution of random numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// Uniform distribution from `low` (inclusive) to `high` (exclusive).
    Uniform {
        /// Lower bound, inclusive.
        low: f64,
        /// Upper bound, exclusive.
        high: f64,
    },
    /// Normal distribution.
    Normal {
        /// Mean.
        mean: f64,
        /// Standard deviation.
        deviation: f64,
    },
}

/// Attention's parameters other than its tensors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionSize {
    /// Factor of the scores before the softmax.
    pub scale: f64,
    /// Attention mask.
    pub mask: Mask,
}

/// An attention mask, which selects the keys that each query attends to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mask {
    /// Every query attends to all keys.
    #[default]
    None,
    /// Query `i` attends to keys 0 to `i`.
    Causal,
}

/// The kind of element to find. NaN counts as larger than all others in a search for the largest element, and as
/// smaller in a search for the smallest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extremum {
    /// The largest element.
    Largest,
    /// The smallest element.
    Smallest,
}

/// The sliding window of a convolution or pooling over an image of `[channels, height, width]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Kernel height and width.
    pub kernel: [usize; 2],
    /// Vertical and horizontal stride.
    pub stride: [usize; 2],
    /// Padding above and below, and left and right. It counts as 0, except in max pooling, where it is skipped.
    pub padding: [usize; 2],
    /// Vertical and horizontal distance of the kernel's elements, which is 1 for pooling.
    pub dilation: [usize; 2],
    /// Height and width of the output.
    pub places: [usize; 2],
    /// First output position, in row-major order.
    pub first: usize,
}

impl Window {
    /// Returns the height and width that a window covers, including the gaps between the kernel's elements.
    pub fn span(&self) -> [usize; 2] {
        [0, 1].map(|axis| self.kernel[axis].saturating_sub(1).saturating_mul(self.dilation[axis]).saturating_add(1))
    }
}

/// Parameters of rotary embeddings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rotation {
    /// Base of the angles. Pair `i` of a head of `width` elements is rotated by `base^(−2i / width)` per position.
    pub base: f64,
    /// Position of the first element of the sequence.
    pub first: usize,
    /// Whether to rotate in the opposite direction, which computes the gradient.
    pub back: bool,
}

/// A comparison of two elements. With a NaN operand, only [`Self::NotEqual`] is true.
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

/// A piecewise linear function of one or two operands. The slopes of an element are stored in two bits. The slope is
/// −1, 0 or 1 for one operand, and 0, ½ or 1 for each of two operands. The two slopes add up to 1, unless an operand is
/// NaN, in which case both are 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Piecewise {
    /// |l|, with slope 0 at 0.
    Abs,
    /// l clamped to the range from `low` to `high`, with slope 0 at either bound.
    Clamp {
        /// Lower bound.
        low: f64,
        /// Upper bound.
        high: f64,
    },
    /// Elementwise maximum. Both slopes are ½ where the elements are equal.
    Maximum,
    /// Elementwise minimum. Both slopes are ½ where the elements are equal.
    Minimum,
}

/// An operand of a [`Piecewise`] function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The operand of a unary function.
    Only,
    /// The left of two operands.
    Left,
    /// The right of two operands.
    Right,
}

/// A cumulative sum or product along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan {
    /// The function that combines elements.
    pub fold: Fold,
    /// Whether each element is excluded from its own result. The first result is then the empty sum or product.
    pub exclusive: bool,
    /// Whether the scan starts at the end of the axis.
    pub backwards: bool,
}

/// The function with which a scan combines elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// Sum.
    Sum,
    /// Product.
    Product,
}

/// The form of a norm's second statistic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spread {
    /// 1 / standard deviation.
    Rstd,
    /// Variance.
    Variance {
        /// Term added to the variance before the square root.
        epsilon: f64,
    },
}
