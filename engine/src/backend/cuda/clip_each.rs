//! Gradient clipping of many tensors in shared launches, if all are contiguous.

use highwater_kernels::Kernel;

use super::launch::{Queue, check_float, is_in_order, types};
use super::multi_tensor::{Common, Operand, Part, Work, chunks};
use crate::Result;
use crate::backend::{Nest, View};

/// Size in bytes of the arguments that pass tensors to this file's kernels.
const BYTES: usize = 4000;

type Shared<'a> = Result<Option<(Work<'a>, Part<'a>)>>;

/// Returns `None` also if the workspace cannot hold a partial result for each chunk of `input`.
pub(super) fn add_norm<'a>(total: View<'a>, input: View<'a>, order: f64) -> Shared<'a> {
    let op = "norm";
    let (name, end) = match order {
        f64::INFINITY => ("add_norm_largest_each", "end_norm_largest"),
        2.0 => ("add_norm_squares_each", "end_norm_sum"),
        1.0 => ("add_norm_magnitudes_each", "end_norm_sum"),
        _ => ("add_norm_powers_each", "end_norm_sum"),
    };
    let (_, workspace_bytes) = Queue::of(total.storage.device(), op)?.workspace();
    if chunks(input.layout.elements()) * 8 > workspace_bytes {
        return Ok(None);
    }
    let end = Kernel::new("clip", end, types(input.dtype));
    shared(op, name, Operand::Read(input), Common::Parts(end, total), &[order])
}

pub(super) fn clip_to_norm<'a>(out: View<'a>, norm: View<'a>, most: f64) -> Shared<'a> {
    shared("clip_grad_norm", "clip_to_norm_each", Operand::Written(out), Common::Read(norm), &[most])
}

pub(super) fn clamp<'a>(out: View<'a>, least: f64, most: f64) -> Shared<'a> {
    shared("clamp", "clamp_each", Operand::Written(out), Common::Nothing, &[least, most])
}

pub(super) fn find_nonfinite<'a>(found: View<'a>, input: View<'a>) -> Shared<'a> {
    shared("find_nonfinite", "find_nonfinite_each", Operand::Read(input), Common::Written(found), &[])
}

fn shared<'a>(
    op: &'static str,
    name: &'static str,
    operand: Operand<'a>,
    common: Common<'a>,
    numbers: &[f64],
) -> Shared<'a> {
    let (Operand::Read(view) | Operand::Written(view)) = operand else { return Ok(None) };
    check_float(op, view.dtype)?;
    let nest = Nest::new([view.layout]);
    if !is_in_order(&nest) {
        return Ok(None);
    }
    let kernel = Kernel::new("clip_each", name, types(view.dtype));
    let numbers = numbers.iter().map(|number| number.to_bits()).collect();
    let work = Work { op, kernel, bytes: BYTES, common, numbers };
    Ok(Some((work, Part { elements: nest.elements(), operands: vec![operand] })))
}
