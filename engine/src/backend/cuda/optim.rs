//! Fused optimizer steps, of one tensor or of many in one launch.

use highwater_kernels::{Arguments, Kernel, Types};

use super::launch::{Queue, address_of, is_in_order, nest_words, number, reading, writing};
use super::multi_tensor::{self, Common, Operand, Part, Work};
use crate::backend::View;
use crate::backend::nest::Nest;
use crate::backend::step::{AdamStep, SgdStep};
use crate::dtype::DType;
use crate::error::{Error, Result};

const FILE: &str = "optim";

/// Bytes in which this file's kernels are told of many tensors.
const BYTES: usize = 4000;

/// The types of a parameter and of its gradient: the same, or the parameter is f32 and the gradient narrower.
pub(super) fn pair(op: &'static str, parameter: DType, grad: DType) -> Result<Types> {
    let is_narrower = parameter == DType::F32 && matches!(grad, DType::Bf16 | DType::F16);
    if is_narrower || parameter == grad && parameter.is_float() {
        return Ok(Types::pair(number(parameter), number(grad)));
    }
    let need = "expected a gradient of the parameter's dtype, or bf16 or f16 for f32 parameters";
    Err(Error::DType { op, found: grad, need })
}

pub(crate) fn sgd(
    parameter: View<'_>,
    rounded: Option<View<'_>>,
    grad: View<'_>,
    direction: Option<View<'_>>,
    step: SgdStep,
) -> Result<()> {
    let op = "sgd";
    let queue = Queue::of(parameter.storage.device(), op)?;
    if let Some((work, part)) = sgd_part(parameter, rounded, grad, direction, step)? {
        return multi_tensor::launch(&queue, &work, &[part]);
    }
    let nest = Nest::new([parameter.layout, grad.layout]);
    let (from, to) = (reading(grad, op)?, writing(parameter, op)?);
    let [copy, directions] = [rounded, direction].map(|view| view.map(|view| writing(view, op)).transpose());
    let (copy, directions) = (copy?, directions?);
    let arguments = Arguments::new()
        .with(to.address())
        .with(address_of(&copy))
        .with(from.address())
        .with(address_of(&directions))
        .with(nest.elements() as u64)
        .with_words(&nest_words(&nest))
        .with_words(&sgd_numbers(step));
    let kernel = Kernel::new(FILE, "sgd_nest", pair(op, parameter.dtype, grad.dtype)?);
    queue.launch(kernel, queue.over(nest.elements(), 1), &arguments)
}

/// A step's part in a launch for many tensors; nothing if the gradient is not in the parameter's order.
pub(super) fn sgd_part<'a>(
    parameter: View<'a>,
    rounded: Option<View<'a>>,
    grad: View<'a>,
    direction: Option<View<'a>>,
    step: SgdStep,
) -> Result<Option<(Work<'a>, Part<'a>)>> {
    let op = "sgd";
    let types = pair(op, parameter.dtype, grad.dtype)?;
    let nest = Nest::new([parameter.layout, grad.layout]);
    let work = Work {
        op,
        kernel: Kernel::new(FILE, "sgd_each", types),
        bytes: BYTES,
        common: Common::Nothing,
        numbers: sgd_numbers(step),
    };
    let operands =
        [Operand::Written(parameter), Operand::written(rounded), Operand::Read(grad), Operand::written(direction)];
    let part = Part { elements: nest.elements(), operands: operands.to_vec() };
    Ok(is_in_order(&nest).then_some((work, part)))
}

/// `struct SgdStep` in steps.cuh.
fn sgd_numbers(step: SgdStep) -> Vec<u64> {
    let SgdStep { learning_rate, momentum, dampening, weight_decay, nesterov, is_first, grad_scale } = step;
    let numbers = [learning_rate, momentum, 1.0 - dampening, weight_decay, grad_scale];
    let mut words = numbers.map(f64::to_bits).to_vec();
    words.push(u64::from(nesterov) | u64::from(is_first) << 32);
    words
}

pub(crate) fn adam(
    parameter: View<'_>,
    rounded: Option<View<'_>>,
    grad: View<'_>,
    moments: [View<'_>; 2],
    step: AdamStep,
) -> Result<()> {
    let op = "adam";
    let queue = Queue::of(parameter.storage.device(), op)?;
    if let Some((work, part)) = adam_part(parameter, rounded, grad, moments, step)? {
        return multi_tensor::launch(&queue, &work, &[part]);
    }
    let nest = Nest::new([parameter.layout, grad.layout]);
    let (from, to) = (reading(grad, op)?, writing(parameter, op)?);
    let copy = rounded.map(|view| writing(view, op)).transpose()?;
    let (mean, square) = (writing(moments[0], op)?, writing(moments[1], op)?);
    let arguments = Arguments::new()
        .with(to.address())
        .with(address_of(&copy))
        .with(from.address())
        .with(mean.address())
        .with(square.address())
        .with(nest.elements() as u64)
        .with_words(&nest_words(&nest))
        .with_words(&adam_numbers(step));
    let kernel = Kernel::new(FILE, "adam_nest", pair(op, parameter.dtype, grad.dtype)?);
    queue.launch(kernel, queue.over(nest.elements(), 1), &arguments)
}

/// A step's part in a launch for many tensors; nothing if the gradient is not in the parameter's order.
pub(super) fn adam_part<'a>(
    parameter: View<'a>,
    rounded: Option<View<'a>>,
    grad: View<'a>,
    moments: [View<'a>; 2],
    step: AdamStep,
) -> Result<Option<(Work<'a>, Part<'a>)>> {
    let op = "adam";
    let types = pair(op, parameter.dtype, grad.dtype)?;
    let nest = Nest::new([parameter.layout, grad.layout]);
    let work = Work {
        op,
        kernel: Kernel::new(FILE, "adam_each", types),
        bytes: BYTES,
        common: Common::Nothing,
        numbers: adam_numbers(step),
    };
    let mut operands = vec![Operand::Written(parameter), Operand::written(rounded), Operand::Read(grad)];
    operands.extend(moments.map(Operand::Written));
    Ok(is_in_order(&nest).then_some((work, Part { elements: nest.elements(), operands })))
}

/// `struct AdamStep` in steps.cuh.
pub(super) fn adam_numbers(step: AdamStep) -> Vec<u64> {
    let AdamStep { rate, betas, square_scale, epsilon, weight_decay, keep, grad_scale } = step;
    let [entering, entering_square] = betas.map(|beta| 1.0 - beta);
    let numbers = [rate, entering, entering_square, betas[1], square_scale, epsilon, weight_decay, keep, grad_scale];
    numbers.map(f64::to_bits).to_vec()
}
