//! Elementwise comparisons of two tensors, or of a tensor and a scalar.

use super::launch::Launch;
use crate::Result;
use crate::backend::{Comparison, View};

const FILE: &str = "compare";

/// Returns the relations between two numbers for which a comparison is true, in the encoding of compare.cu.
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
    let launch = Launch::new(FILE, left)?.write(out)?.read(left)?.read(right)?.lines::<3>();
    launch.with(wanted(comparison)).run(FILE, "compare")
}

pub(crate) fn compare_number(out: View<'_>, comparison: Comparison, input: View<'_>, number: f64) -> Result<()> {
    let launch = Launch::new(FILE, input)?.write(out)?.read(input)?.lines::<2>();
    launch.with(wanted(comparison)).with(number).run(FILE, "compare_number")
}
