//! Elementwise operations.

use bytemuck::Pod;
use highwater_kernels::gpu::launch::THREADS;
use highwater_kernels::{Grid, Number, Types};

use super::launch::Launch;
use super::transposed::Transposed;
use crate::backend::{Binary, Nest, Ternary, Unary, View};
use crate::{DType, Layout, Result};

const FILE: &str = "elementwise";

/// Returns `T` for kernels that only move elements, which depend only on the size of an element.
pub(super) fn moved(dtype: DType) -> Types {
    Types::of(match dtype.size() {
        8 => Number::F64,
        4 => Number::F32,
        2 => Number::Bf16,
        _ => Number::U8,
    })
}

pub(crate) fn fill(out: View<'_>, value: f64) -> Result<()> {
    let launch = Launch::new("fill", out)?.typed(moved(out.dtype)).write(out)?.lines::<1>();
    let launch = match out.dtype {
        DType::F64 => launch.with(value),
        DType::F32 => launch.with(value as f32),
        DType::Bf16 => launch.with(half::bf16::from_f32(value as f32)),
        DType::F16 => launch.with(half::f16::from_f32(value as f32)),
        DType::I64 => launch.with(value as i64),
        DType::U8 => launch.with(value as u8),
        DType::Bool => launch.with(u8::from(value != 0.0)),
    };
    launch.run("fill", "fill")
}

pub(crate) fn copy(out: View<'_>, input: View<'_>) -> Result<()> {
    let launch = Launch::new("copy", out)?.typed(moved(out.dtype)).write(out)?.read(input)?;
    let Some(transposed) = Transposed::of(&launch.nest_of_operands(), out.dtype.size()) else {
        return launch.lines::<2>().run("fill", "copy");
    };
    let threads = [32, THREADS / 32, 1];
    let grid = Grid { threads, ..launch.queue.over(transposed.tiles * THREADS as usize, 1) };
    launch.words(&transposed.words).grid(grid).run("fill", "copy_turned")
}

/// Waits for the device, and allocates no device memory.
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
    let (name, [a, b]) = match function {
        Unary::Affine { scale, shift } => ("unary_affine", [scale, shift]),
        Unary::Exp => ("unary_exp", [0.0; 2]),
        Unary::Log => ("unary_log", [0.0; 2]),
        Unary::Sqrt => ("unary_sqrt", [0.0; 2]),
        Unary::AffineSqrt { scale, shift } => ("unary_affine_sqrt", [scale, shift]),
        Unary::Square => ("unary_square", [0.0; 2]),
        Unary::Tanh => ("unary_tanh", [0.0; 2]),
        Unary::Sin => ("unary_sin", [0.0; 2]),
        Unary::Cos => ("unary_cos", [0.0; 2]),
        Unary::Sigmoid => ("unary_sigmoid", [0.0; 2]),
        Unary::Silu => ("unary_silu", [0.0; 2]),
        Unary::Relu => ("unary_relu", [0.0; 2]),
        Unary::Gelu => ("unary_gelu", [0.0; 2]),
        Unary::GeluTanh => ("unary_gelu_tanh", [0.0; 2]),
    };
    let launch = Launch::of_floats("unary", out)?.write(out)?.read_or(input, out)?.lines::<2>();
    launch.with(a).with(b).run(FILE, name)
}

pub(crate) fn binary(out: View<'_>, function: Binary, left: Option<View<'_>>, right: View<'_>) -> Result<()> {
    let (name, number) = match function {
        Binary::Add => ("binary_add", 0.0),
        Binary::Sub => ("binary_sub", 0.0),
        Binary::Mul => ("binary_mul", 0.0),
        Binary::Div => ("binary_div", 0.0),
        Binary::AddScaled(scale) => ("binary_add_scaled", scale),
        Binary::Lerp(weight) => ("binary_lerp", weight),
        Binary::NegMul => ("binary_neg_mul", 0.0),
        Binary::SquareGrad => ("binary_square_grad", 0.0),
        Binary::SqrtGrad => ("binary_sqrt_grad", 0.0),
        Binary::TanhGrad => ("binary_tanh_grad", 0.0),
        Binary::SinGrad => ("binary_sin_grad", 0.0),
        Binary::CosGrad => ("binary_cos_grad", 0.0),
        Binary::SigmoidGrad => ("binary_sigmoid_grad", 0.0),
        Binary::SiluGrad => ("binary_silu_grad", 0.0),
        Binary::ReluGrad => ("binary_relu_grad", 0.0),
        Binary::GeluGrad => ("binary_gelu_grad", 0.0),
        Binary::GeluTanhGrad => ("binary_gelu_tanh_grad", 0.0),
    };
    let launch = Launch::of_floats("binary", out)?.write(out)?.read_or(left, out)?.read(right)?.lines::<3>();
    launch.with(number).run(FILE, name)
}

pub(crate) fn ternary(out: View<'_>, function: Ternary, left: View<'_>, right: View<'_>) -> Result<()> {
    let (name, [a, b]) = match function {
        Ternary::AddMul { keep, scale } => ("ternary_add_mul", [scale, keep]),
        Ternary::AddDiv(scale) => ("ternary_add_div", [scale, 0.0]),
    };
    let launch = Launch::of_floats("ternary", out)?.write(out)?.read(left)?.read(right)?.lines::<3>();
    launch.with(a).with(b).run(FILE, name)
}
