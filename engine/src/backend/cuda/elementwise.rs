//! Elementwise: one output element from the input elements at the same place.

use bytemuck::Pod;
use highwater_kernels::{Arguments, Kernel};

use super::launch::{Place, Queue, check_float, is_in_order, nest_words, reading, types, writing};
use crate::backend::nest::Nest;
use crate::backend::{Binary, Ternary, Unary, View};
use crate::dtype::DType;
use crate::error::Result;
use crate::layout::Layout;

const FILE: &str = "elementwise";

/// See [`crate::backend::fill`].
pub fn fill(out: View<'_>, value: f64) -> Result<()> {
    let op = "fill";
    let queue = Queue::of(out.storage.device(), op)?;
    let nest = Nest::new([out.layout]);
    let (elements, grid) = (nest.elements() as u64, queue.over(nest.elements(), 4));
    let place = writing(out, op)?;
    let arguments = Arguments::new().with(place.address()).with(elements).with_words(&nest_words(&nest));
    let arguments = match out.dtype {
        DType::F64 => arguments.with(value),
        DType::F32 => arguments.with(value as f32),
        DType::Bf16 => arguments.with(half::bf16::from_f64(value)),
        DType::F16 => arguments.with(half::f16::from_f64(value)),
        DType::I64 => arguments.with(value as i64),
        DType::U8 => arguments.with(value as u8),
        DType::Bool => arguments.with(u8::from(value != 0.0)),
    };
    queue.launch(Kernel::new("fill", "fill", types(out.dtype)), grid, &arguments)
}

/// See [`crate::backend::copy`].
pub fn copy(out: View<'_>, input: View<'_>) -> Result<()> {
    let op = "copy";
    let queue = Queue::of(out.storage.device(), op)?;
    let nest = Nest::new([out.layout, input.layout]);
    let (elements, grid) = (nest.elements() as u64, queue.over(nest.elements(), 4));
    let (from, to) = (reading(input, op)?, writing(out, op)?);
    let arguments =
        Arguments::new().with(to.address()).with(from.address()).with(elements).with_words(&nest_words(&nest));
    queue.launch(Kernel::new("fill", "copy", types(out.dtype)), grid, &arguments)
}

/// The numbers in order, the last axis fastest, as the host's own. Waits for the device; takes none of its memory.
pub fn to_host<T: Pod>(input: View<'_>) -> Result<Vec<T>> {
    let (first, end) = (input.layout.offset(), input.layout.end());
    let mut memory = vec![T::zeroed(); end.saturating_sub(first)];
    input.storage.copy_out("to_vec", first * size_of::<T>(), bytemuck::cast_slice_mut(&mut memory))?;
    if input.layout.is_contiguous() {
        return Ok(memory);
    }
    let mut numbers = vec![T::zeroed(); input.layout.elements()];
    let order = Layout::contiguous(*input.layout.shape());
    let near = input.layout.at(0);
    Nest::new([&order, &near]).each(|[to, from]| numbers[to] = memory[from]);
    Ok(numbers)
}

/// Names of a function's kernels: for memory in order, and for any layout.
macro_rules! names {
    ($kind:literal, $name:literal) => {
        (concat!($kind, "_", $name), concat!($kind, "_", $name, "_nest"))
    };
}

/// See [`crate::backend::unary`].
pub fn unary(out: View<'_>, function: Unary, input: Option<View<'_>>) -> Result<()> {
    let op = "unary";
    check_float(op, out.dtype)?;
    let mut numbers = [0.0, 0.0];
    let (in_order, in_nest) = match function {
        Unary::Affine { scale, shift } => {
            numbers = [scale, shift];
            names!("unary", "affine")
        }
        Unary::Exp => names!("unary", "exp"),
        Unary::Log => names!("unary", "log"),
        Unary::Sqrt => names!("unary", "sqrt"),
        Unary::Square => names!("unary", "square"),
        Unary::Tanh => names!("unary", "tanh"),
        Unary::Sin => names!("unary", "sin"),
        Unary::Cos => names!("unary", "cos"),
        Unary::Sigmoid => names!("unary", "sigmoid"),
        Unary::Silu => names!("unary", "silu"),
        Unary::Relu => names!("unary", "relu"),
        Unary::Gelu => names!("unary", "gelu"),
        Unary::GeluTanh => names!("unary", "gelu_tanh"),
    };
    let queue = Queue::of(out.storage.device(), op)?;
    let nest = Nest::new([out.layout, input.map_or(out.layout, |input| input.layout)]);
    let from = input.map(|input| reading(input, op)).transpose()?;
    let to = writing(out, op)?;
    let from = from.as_ref().unwrap_or(&to);
    let arguments = Arguments::new().with(to.address()).with(from.address()).with(nest.elements() as u64);
    let [a, b] = numbers;
    if is_in_order(&nest) {
        let grid = queue.over(nest.elements(), 16 / out.dtype.size() as u64);
        let is_wide = u32::from(to.is_wide() && from.is_wide());
        let arguments = arguments.with(is_wide).with(a).with(b);
        return queue.launch(Kernel::new(FILE, in_order, types(out.dtype)), grid, &arguments);
    }
    let arguments = arguments.with_words(&nest_words(&nest)).with(a).with(b);
    queue.launch(Kernel::new(FILE, in_nest, types(out.dtype)), queue.over(nest.elements(), 1), &arguments)
}

/// See [`crate::backend::binary`].
pub fn binary(out: View<'_>, function: Binary, left: Option<View<'_>>, right: View<'_>) -> Result<()> {
    let op = "binary";
    check_float(op, out.dtype)?;
    let mut number = 0.0;
    let (in_order, in_nest) = match function {
        Binary::Add => names!("binary", "add"),
        Binary::Sub => names!("binary", "sub"),
        Binary::Mul => names!("binary", "mul"),
        Binary::Div => names!("binary", "div"),
        Binary::AddScaled(scale) => {
            number = scale;
            names!("binary", "add_scaled")
        }
        Binary::Lerp(weight) => {
            number = weight;
            names!("binary", "lerp")
        }
        Binary::NegMul => names!("binary", "neg_mul"),
        Binary::SquareGrad => names!("binary", "square_grad"),
        Binary::SqrtGrad => names!("binary", "sqrt_grad"),
        Binary::TanhGrad => names!("binary", "tanh_grad"),
        Binary::SinGrad => names!("binary", "sin_grad"),
        Binary::CosGrad => names!("binary", "cos_grad"),
        Binary::SigmoidGrad => names!("binary", "sigmoid_grad"),
        Binary::SiluGrad => names!("binary", "silu_grad"),
        Binary::ReluGrad => names!("binary", "relu_grad"),
        Binary::GeluGrad => names!("binary", "gelu_grad"),
        Binary::GeluTanhGrad => names!("binary", "gelu_tanh_grad"),
    };
    let queue = Queue::of(out.storage.device(), op)?;
    let nest = Nest::new([out.layout, left.map_or(out.layout, |left| left.layout), right.layout]);
    let (l, r) = (left.map(|left| reading(left, op)).transpose()?, reading(right, op)?);
    let to = writing(out, op)?;
    let l = l.as_ref().unwrap_or(&to);
    let elements = nest.elements();
    let arguments = Arguments::new().with(to.address()).with(l.address()).with(r.address()).with(elements as u64);
    if is_in_order(&nest) {
        let grid = queue.over(elements, 16 / out.dtype.size() as u64);
        let is_wide = u32::from([&to, l, &r].into_iter().all(Place::is_wide));
        let arguments = arguments.with(is_wide).with(number);
        return queue.launch(Kernel::new(FILE, in_order, types(out.dtype)), grid, &arguments);
    }
    let arguments = arguments.with_words(&nest_words(&nest)).with(number);
    queue.launch(Kernel::new(FILE, in_nest, types(out.dtype)), queue.over(elements, 1), &arguments)
}

/// See [`crate::backend::ternary`].
pub fn ternary(out: View<'_>, function: Ternary, left: View<'_>, right: View<'_>) -> Result<()> {
    let op = "ternary";
    check_float(op, out.dtype)?;
    let (name, scale) = match function {
        Ternary::AddMul(scale) => ("ternary_add_mul", scale),
        Ternary::AddDiv(scale) => ("ternary_add_div", scale),
    };
    let queue = Queue::of(out.storage.device(), op)?;
    let nest = Nest::new([out.layout, left.layout, right.layout]);
    let (l, r) = (reading(left, op)?, reading(right, op)?);
    let to = writing(out, op)?;
    let elements = nest.elements();
    let arguments = Arguments::new()
        .with(to.address())
        .with(l.address())
        .with(r.address())
        .with(elements as u64)
        .with_words(&nest_words(&nest))
        .with(scale);
    queue.launch(Kernel::new(FILE, name, types(out.dtype)), queue.over(elements, 1), &arguments)
}
