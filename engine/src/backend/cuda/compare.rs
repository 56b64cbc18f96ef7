//! Elementwise comparisons of two tensors, or of a tensor and a scalar.

use highwater_kernels::{Arguments, Kernel};

use super::launch::{Queue, reading, types, writing};
use super::lines::Lines;
use crate::backend::nest::Nest;
use crate::backend::{Comparison, View};
use crate::error::Result;

const FILE: &str = "compare";

/// Of which relations of two numbers a comparison holds, as compare.cu counts them.
fn wanted(comparison: Comparison) -> u32 {
    const LESS: u32 = 1;
    const EQUAL: u32 = 2;
    const GREATER: u32 = 4;
    const UNORDERED: u32 = 8;
    match comparison {
        Comparison::Less => LESS,
        Comparison::LessOrEqual => LESS | EQUAL,
        Comparison::Greater => GREATER,
        Comparison::GreaterOrEqual => GREATER | EQUAL,
        Comparison::Equal => EQUAL,
        Comparison::NotEqual => LESS | GREATER | UNORDERED,
    }
}

pub(crate) fn compare(out: View<'_>, comparison: Comparison, left: View<'_>, right: View<'_>) -> Result<()> {
    let op = "compare";
    let queue = Queue::of(out.storage.device(), op)?;
    let nest = Nest::new([out.layout, left.layout, right.layout]);
    let (l, r) = (reading(left, op)?, reading(right, op)?);
    let to = writing(out, op)?;
    let sizes = [(&to, out.dtype.size()), (&l, left.dtype.size()), (&r, right.dtype.size())];
    let lines = Lines::new(&queue, &nest, sizes);
    let arguments = Arguments::new().with(to.address()).with(l.address()).with(r.address());
    let arguments = lines.after(arguments).with(wanted(comparison));
    queue.launch(Kernel::new(FILE, "compare", types(left.dtype)), lines.grid, &arguments)
}

pub(crate) fn compare_number(out: View<'_>, comparison: Comparison, input: View<'_>, number: f64) -> Result<()> {
    let op = "compare";
    let queue = Queue::of(out.storage.device(), op)?;
    let nest = Nest::new([out.layout, input.layout]);
    let (from, to) = (reading(input, op)?, writing(out, op)?);
    let lines = Lines::new(&queue, &nest, [(&to, out.dtype.size()), (&from, input.dtype.size())]);
    let arguments = lines.after(Arguments::new().with(to.address()).with(from.address()));
    let arguments = arguments.with(wanted(comparison)).with(number);
    queue.launch(Kernel::new(FILE, "compare_number", types(input.dtype)), lines.grid, &arguments)
}
