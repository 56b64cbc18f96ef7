//! Batches calls of primitives, so that calls that differ only in their tensors share launches.

use highwater_kernels::Kernel;

use super::launch::{Queue, is_in_order, types};
use super::multi_tensor::{self, Common, Operand, Part, Work};
use super::{clip_each, optim, optim_8bit};
use crate::Result;
use crate::backend::{Binary, Call, Nest, Ternary, Unary, View, observe};

/// Size in bytes of the arguments that pass tensors to the kernels of multi_tensor.cu.
const BYTES: usize = 4000;

pub(crate) fn run_all(calls: &[Call<'_>]) -> Result<()> {
    let mut launches: Vec<(Work<'_>, Vec<Part<'_>>)> = Vec::new();
    for &call in calls {
        match shared(call)? {
            None => call.run()?,
            Some((work, part)) => {
                observe(call.primitive(), &[&call]);
                match launches.iter_mut().rev().find(|(other, _)| other.is_same(&work)) {
                    Some((_, parts)) => parts.push(part),
                    None => launches.push((work, vec![part])),
                }
            }
        }
    }
    let Some(first) = calls.first() else { return Ok(()) };
    let device = first.out().storage.device();
    let (_turn, queue) = (device.workspace_turn(), Queue::of(device, "multi_tensor")?);
    launches.iter().try_for_each(|(work, parts)| multi_tensor::launch(&queue, work, parts))
}

/// Returns the properties that a call must have in common with other calls of a launch, and its own arguments; `None`
/// if it needs a separate launch.
fn shared(call: Call<'_>) -> Result<Option<(Work<'_>, Part<'_>)>> {
    Ok(match call {
        Call::Unary(out, function, input) => unary(out, function, input),
        Call::Binary(out, function, left, right) => binary(out, function, left, right),
        Call::Ternary(out, function, left, right) => ternary(out, function, left, right),
        Call::Sgd(parameter, rounded, grad, direction, step) => {
            optim::sgd_step(parameter, rounded, grad, direction, step).part()?
        }
        Call::Adam(parameter, rounded, grad, moments, step) => {
            optim::adam_step(parameter, rounded, grad, moments, step).part()?
        }
        Call::Adam8bit(parameter, rounded, grad, state, step) => {
            optim_8bit::adam_step(parameter, rounded, grad, state, step).part()?
        }
        Call::AddNorm(total, input, order) => clip_each::add_norm(total, input, order)?,
        Call::ClipToNorm(out, norm, most) => clip_each::clip_to_norm(out, norm, most)?,
        Call::Clamp(out, least, most) => clip_each::clamp(out, least, most)?,
        Call::FindNonfinite(found, input) => clip_each::find_nonfinite(found, input)?,
    })
}

/// Returns the arguments of a call for a kernel of multi_tensor.cu; `None` unless `out` is floating-point and all
/// operands are contiguous in the same order.
fn part<'a, const N: usize>(
    name: &'static str,
    numbers: [f64; 2],
    nest: &Nest<N>,
    out: View<'a>,
    read: &[Operand<'a>],
) -> Option<(Work<'a>, Part<'a>)> {
    if !out.dtype.is_float() || !is_in_order(nest) {
        return None;
    }
    let work = Work {
        op: "multi_tensor",
        kernel: Kernel::new("multi_tensor", name, types(out.dtype)),
        bytes: BYTES,
        common: Common::Nothing,
        numbers: numbers.map(f64::to_bits).to_vec(),
    };
    let mut operands = vec![Operand::Written(out)];
    operands.extend(read);
    Some((work, Part { elements: nest.elements(), operands }))
}

/// Returns an operand that reads `view`, or the written operand if there is no view.
fn read_or_same(view: Option<View<'_>>) -> Operand<'_> {
    view.map_or(Operand::Same(0), Operand::Read)
}

fn unary<'a>(out: View<'a>, function: Unary, input: Option<View<'a>>) -> Option<(Work<'a>, Part<'a>)> {
    let (name, numbers) = match function {
        Unary::Affine { scale, shift } => ("unary_affine_each", [scale, shift]),
        Unary::AffineSqrt { scale, shift } => ("unary_affine_sqrt_each", [scale, shift]),
        _ => return None,
    };
    let nest = Nest::new([out.layout, input.unwrap_or(out).layout]);
    part(name, numbers, &nest, out, &[read_or_same(input)])
}

fn binary<'a>(
    out: View<'a>,
    function: Binary,
    left: Option<View<'a>>,
    right: View<'a>,
) -> Option<(Work<'a>, Part<'a>)> {
    let (name, number) = match function {
        Binary::AddScaled(scale) => ("binary_add_scaled_each", scale),
        Binary::Lerp(weight) => ("binary_lerp_each", weight),
        _ => return None,
    };
    let nest = Nest::new([out.layout, left.unwrap_or(out).layout, right.layout]);
    part(name, [number, 0.0], &nest, out, &[read_or_same(left), Operand::Read(right)])
}

fn ternary<'a>(out: View<'a>, function: Ternary, left: View<'a>, right: View<'a>) -> Option<(Work<'a>, Part<'a>)> {
    let (name, numbers) = match function {
        Ternary::AddMul { keep, scale } => ("ternary_add_mul_each", [scale, keep]),
        Ternary::AddDiv(scale) => ("ternary_add_div_each", [scale, 0.0]),
    };
    let nest = Nest::new([out.layout, left.layout, right.layout]);
    part(name, numbers, &nest, out, &[Operand::Read(left), Operand::Read(right)])
}
