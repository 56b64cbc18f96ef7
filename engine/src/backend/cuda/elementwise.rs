//! Elementwise operations.

use bytemuck::Pod;
use highwater_kernels::gpu::launch::THREADS;
use highwater_kernels::{Arguments, Grid, Kernel, Number, Types};

use super::launch::{Queue, check_float, reading, types, writing};
use super::lines::Lines;
use super::transposed::Transposed;
use crate::backend::nest::Nest;
use crate::backend::{Binary, Ternary, Unary, View};
use crate::dtype::DType;
use crate::error::Result;
use crate::layout::Layout;

const FILE: &str = "elementwise";

/// `T` for kernels that only move elements: they know how many bytes one has.
pub(super) fn moved(dtype: DType) -> Types {
    Types::of(match dtype.size() {
        8 => Number::F64,
        4 => Number::F32,
        2 => Number::Bf16,
        _ => Number::U8,
    })
}

pub(crate) fn fill(out: View<'_>, value: f64) -> Result<()> {
    let op = "fill";
    let queue = Queue::of(out.storage.device(), op)?;
    let nest = Nest::new([out.layout]);
    let to = writing(out, op)?;
    let lines = Lines::new(&queue, &nest, [(&to, out.dtype.size())]);
    let arguments = lines.after(Arguments::new().with(to.address()));
    let arguments = match out.dtype {
        DType::F64 => arguments.with(value),
        DType::F32 => arguments.with(value as f32),
        DType::Bf16 => arguments.with(half::bf16::from_f32(value as f32)),
        DType::F16 => arguments.with(half::f16::from_f32(value as f32)),
        DType::I64 => arguments.with(value as i64),
        DType::U8 => arguments.with(value as u8),
        DType::Bool => arguments.with(u8::from(value != 0.0)),
    };
    queue.launch(Kernel::new("fill", "fill", moved(out.dtype)), lines.grid, &arguments)
}

pub(crate) fn copy(out: View<'_>, input: View<'_>) -> Result<()> {
    let op = "copy";
    let queue = Queue::of(out.storage.device(), op)?;
    let nest = Nest::new([out.layout, input.layout]);
    let (from, to) = (reading(input, op)?, writing(out, op)?);
    let arguments = Arguments::new().with(to.address()).with(from.address());
    let bytes = out.dtype.size();
    if let Some(transposed) = Transposed::of(&nest, bytes) {
        let grid = Grid { threads: [32, THREADS / 32, 1], ..queue.over(transposed.tiles * THREADS as usize, 1) };
        let arguments = arguments.with_words(&transposed.words);
        return queue.launch(Kernel::new("fill", "copy_turned", moved(out.dtype)), grid, &arguments);
    }
    let lines = Lines::new(&queue, &nest, [(&to, bytes), (&from, bytes)]);
    queue.launch(Kernel::new("fill", "copy", moved(out.dtype)), lines.grid, &lines.after(arguments))
}

/// The elements in order, the last axis fastest, as the host's own. Waits for the device; takes none of its memory.
pub(crate) fn to_host<T: Pod>(input: View<'_>) -> Result<Vec<T>> {
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

pub(crate) fn unary(out: View<'_>, function: Unary, input: Option<View<'_>>) -> Result<()> {
    let op = "unary";
    check_float(op, out.dtype)?;
    let mut numbers = [0.0, 0.0];
    let name = match function {
        Unary::Affine { scale, shift } => {
            numbers = [scale, shift];
            "unary_affine"
        }
        Unary::Exp => "unary_exp",
        Unary::Log => "unary_log",
        Unary::Sqrt => "unary_sqrt",
        Unary::AffineSqrt { scale, shift } => {
            numbers = [scale, shift];
            "unary_affine_sqrt"
        }
        Unary::Square => "unary_square",
        Unary::Tanh => "unary_tanh",
        Unary::Sin => "unary_sin",
        Unary::Cos => "unary_cos",
        Unary::Sigmoid => "unary_sigmoid",
        Unary::Silu => "unary_silu",
        Unary::Relu => "unary_relu",
        Unary::Gelu => "unary_gelu",
        Unary::GeluTanh => "unary_gelu_tanh",
    };
    let queue = Queue::of(out.storage.device(), op)?;
    let nest = Nest::new([out.layout, input.map_or(out.layout, |input| input.layout)]);
    let from = input.map(|input| reading(input, op)).transpose()?;
    let to = writing(out, op)?;
    let from = from.as_ref().unwrap_or(&to);
    let lines = Lines::new(&queue, &nest, [&to, from].map(|place| (place, out.dtype.size())));
    let [a, b] = numbers;
    let arguments = lines.after(Arguments::new().with(to.address()).with(from.address())).with(a).with(b);
    queue.launch(Kernel::new(FILE, name, types(out.dtype)), lines.grid, &arguments)
}

pub(crate) fn binary(out: View<'_>, function: Binary, left: Option<View<'_>>, right: View<'_>) -> Result<()> {
    let op = "binary";
    check_float(op, out.dtype)?;
    let mut number = 0.0;
    let name = match function {
        Binary::Add => "binary_add",
        Binary::Sub => "binary_sub",
        Binary::Mul => "binary_mul",
        Binary::Div => "binary_div",
        Binary::AddScaled(scale) => {
            number = scale;
            "binary_add_scaled"
        }
        Binary::Lerp(weight) => {
            number = weight;
            "binary_lerp"
        }
        Binary::NegMul => "binary_neg_mul",
        Binary::SquareGrad => "binary_square_grad",
        Binary::SqrtGrad => "binary_sqrt_grad",
        Binary::TanhGrad => "binary_tanh_grad",
        Binary::SinGrad => "binary_sin_grad",
        Binary::CosGrad => "binary_cos_grad",
        Binary::SigmoidGrad => "binary_sigmoid_grad",
        Binary::SiluGrad => "binary_silu_grad",
        Binary::ReluGrad => "binary_relu_grad",
        Binary::GeluGrad => "binary_gelu_grad",
        Binary::GeluTanhGrad => "binary_gelu_tanh_grad",
    };
    let queue = Queue::of(out.storage.device(), op)?;
    let nest = Nest::new([out.layout, left.map_or(out.layout, |left| left.layout), right.layout]);
    let (l, r) = (left.map(|left| reading(left, op)).transpose()?, reading(right, op)?);
    let to = writing(out, op)?;
    let l = l.as_ref().unwrap_or(&to);
    let lines = Lines::new(&queue, &nest, [&to, l, &r].map(|place| (place, out.dtype.size())));
    let arguments = Arguments::new().with(to.address()).with(l.address()).with(r.address());
    let arguments = lines.after(arguments).with(number);
    queue.launch(Kernel::new(FILE, name, types(out.dtype)), lines.grid, &arguments)
}

pub(crate) fn ternary(out: View<'_>, function: Ternary, left: View<'_>, right: View<'_>) -> Result<()> {
    let op = "ternary";
    check_float(op, out.dtype)?;
    let (name, [a, b]) = match function {
        Ternary::AddMul { keep, scale } => ("ternary_add_mul", [scale, keep]),
        Ternary::AddDiv(scale) => ("ternary_add_div", [scale, 0.0]),
    };
    let queue = Queue::of(out.storage.device(), op)?;
    let nest = Nest::new([out.layout, left.layout, right.layout]);
    let (l, r) = (reading(left, op)?, reading(right, op)?);
    let to = writing(out, op)?;
    let lines = Lines::new(&queue, &nest, [&to, &l, &r].map(|place| (place, out.dtype.size())));
    let arguments = Arguments::new().with(to.address()).with(l.address()).with(r.address());
    let arguments = lines.after(arguments).with(a).with(b);
    queue.launch(Kernel::new(FILE, name, types(out.dtype)), lines.grid, &arguments)
}
