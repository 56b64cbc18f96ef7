//! Random numbers that depend only on seed and position, and ranges of numbers.

use super::launch::Launch;
use super::rows::in_order;
use crate::backend::{Distribution, View};
use crate::rng::Draw;
use crate::{DType, Result};

const FILE: &str = "random";

/// Number of random elements that one thread generates at a time.
const GROUP: usize = 4;

/// Returns a probability as an integer bound. Of 2²⁴ equally probable values, those below the bound are chosen.
pub(super) fn bound(share: f64) -> u32 {
    (share * f64::from(1 << 24)).ceil() as u32
}

pub(crate) fn random(out: View<'_>, distribution: Distribution, draw: Draw) -> Result<()> {
    let (name, [a, b]) = match distribution {
        Distribution::Uniform { low, high } => ("random_uniform", [low, high]),
        Distribution::Normal { mean, deviation } => ("random_normal", [mean, deviation]),
    };
    groups(Launch::of_floats("random", out)?.write(out)?, out, draw).with(a).with(b).run(FILE, name)
}

pub(crate) fn dropout(out: View<'_>, input: Option<View<'_>>, share: f64, draw: Draw) -> Result<()> {
    let input = in_order(out, input)?;
    let launch = Launch::of_floats("dropout", out)?.write(out)?.read_or(input, out)?;
    groups(launch, out, draw).with(bound(share)).with(1.0 / (1.0 - share)).run(FILE, "dropout")
}

/// Uses one thread for each group of elements. The elements of a group are read and written together if they are
/// aligned.
fn groups<'a>(launch: Launch<'a>, out: View<'_>, draw: Draw) -> Launch<'a> {
    let elements = out.layout.elements();
    let is_packed = launch.is_aligned(GROUP * out.dtype.size());
    launch.with(elements as u64).with(u32::from(is_packed)).words(&draw.seed_and_counter()).over(elements, GROUP)
}

pub(crate) fn arange(out: View<'_>, start: f64, step: f64) -> Result<()> {
    let op = "arange";
    let launch = if out.dtype == DType::I64 { Launch::new(op, out) } else { Launch::of_floats(op, out) }?;
    let elements = out.layout.elements();
    launch.write(out)?.with(elements as u64).with(start).with(step).over(elements, 1).run("arange", "arange")
}
