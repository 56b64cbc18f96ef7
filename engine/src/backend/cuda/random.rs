//! Random numbers that depend only on seed and position, and ranges.

use highwater_kernels::{Arguments, Kernel};

use super::elementwise::copy;
use super::launch::{Place, Queue, check_float, reading, types, writing};
use crate::backend::{Distribution, View};
use crate::error::Result;
use crate::rng::Draw;

const FILE: &str = "random";

/// Numbers that are drawn at once, by one thread.
const GROUP: usize = 4;

/// A share as a number of the 2²⁴ steps in which chance is measured: what is below is below the share.
pub(super) fn bound(share: f64) -> u32 {
    (share * f64::from(1 << 24)).ceil() as u32
}

/// Whether groups of numbers of so many bytes can be moved at once.
fn is_packed(places: &[&Place<'_>], bytes: usize) -> u32 {
    u32::from(places.iter().all(|place| place.address().is_multiple_of((GROUP * bytes) as u64)))
}

pub(crate) fn random(out: View<'_>, distribution: Distribution, draw: Draw) -> Result<()> {
    let op = "random";
    check_float(op, out.dtype)?;
    let (name, numbers) = match distribution {
        Distribution::Uniform { low, high } => ("random_uniform", [low, high]),
        Distribution::Normal { mean, deviation } => ("random_normal", [mean, deviation]),
    };
    let queue = Queue::of(out.storage.device(), op)?;
    let elements = out.layout.elements();
    let to = writing(out, op)?;
    let arguments = Arguments::new()
        .with(to.address())
        .with(elements as u64)
        .with(is_packed(&[&to], out.dtype.size()))
        .with_words(&draw.place())
        .with(numbers[0])
        .with(numbers[1]);
    queue.launch(Kernel::new(FILE, name, types(out.dtype)), queue.over(elements, GROUP as u64), &arguments)
}

pub(crate) fn dropout(out: View<'_>, input: Option<View<'_>>, share: f64, draw: Draw) -> Result<()> {
    let op = "dropout";
    check_float(op, out.dtype)?;
    let input = in_order_or_copied(out, input)?;
    let queue = Queue::of(out.storage.device(), op)?;
    let elements = out.layout.elements();
    let from = input.map(|input| reading(input, op)).transpose()?;
    let to = writing(out, op)?;
    let from = from.as_ref().unwrap_or(&to);
    let arguments = Arguments::new()
        .with(to.address())
        .with(from.address())
        .with(elements as u64)
        .with(is_packed(&[&to, from], out.dtype.size()))
        .with_words(&draw.place())
        .with(bound(share))
        .with(1.0 / (1.0 - share));
    queue.launch(Kernel::new(FILE, "dropout", types(out.dtype)), queue.over(elements, GROUP as u64), &arguments)
}

/// The input of a kernel that goes over memory in order. One that is not so is copied to contiguous `out` first, from
/// where the kernel then takes it.
pub(super) fn in_order_or_copied<'a>(out: View<'_>, input: Option<View<'a>>) -> Result<Option<View<'a>>> {
    match input {
        Some(input) if !input.layout.is_contiguous() => copy(out, input).map(|()| None),
        input => Ok(input),
    }
}

pub(crate) fn arange(out: View<'_>, start: f64, step: f64) -> Result<()> {
    let op = "arange";
    if out.dtype != crate::dtype::DType::I64 {
        check_float(op, out.dtype)?;
    }
    let queue = Queue::of(out.storage.device(), op)?;
    let elements = out.layout.elements();
    let to = writing(out, op)?;
    let arguments = Arguments::new().with(to.address()).with(elements as u64).with(start).with(step);
    queue.launch(Kernel::new("arange", "arange", types(out.dtype)), queue.over(elements, 1), &arguments)
}
