//! Fused Adam step with 8-bit running averages.

use highwater_kernels::{Arguments, Kernel};

use super::launch::{Queue, address_of, is_in_order, nest_words, reading, writing};
use super::multi_tensor::{self, Common, Operand, Part, Work};
use super::optim::{adam_numbers, pair};
use crate::backend::View;
use crate::backend::code::{CODE_BLOCK, Code};
use crate::backend::nest::Nest;
use crate::backend::step::AdamStep;
use crate::error::Result;

const FILE: &str = "optim_8bit";
const OP: &str = "adam_8bit";

/// Bytes in which the kernel is told of many tensors: the codes take more than half of what there is.
const BYTES: usize = 1900;

pub(crate) fn adam_8bit(
    parameter: View<'_>,
    rounded: Option<View<'_>>,
    grad: View<'_>,
    state: [View<'_>; 4],
    step: AdamStep,
) -> Result<()> {
    let queue = Queue::of(parameter.storage.device(), OP)?;
    if let Some((work, part)) = adam_part(parameter, rounded, grad, state, step)? {
        return multi_tensor::launch(&queue, &work, &[part]);
    }
    let nest = Nest::new([parameter.layout, grad.layout]);
    let (from, to) = (reading(grad, OP)?, writing(parameter, OP)?);
    let copy = rounded.map(|view| writing(view, OP)).transpose()?;
    let state = state.map(|view| writing(view, OP));
    let mut arguments = Arguments::new().with(to.address()).with(address_of(&copy)).with(from.address());
    let mut places = Vec::new();
    for place in state {
        let place = place?;
        arguments = arguments.with(place.address());
        places.push(place);
    }
    let arguments = arguments.with(nest.elements() as u64).with_words(&nest_words(&nest)).with_words(&numbers(step));
    let kernel = Kernel::new(FILE, "adam_8bit_nest", pair(OP, parameter.dtype, grad.dtype)?);
    // A warp takes a block of codes at a time.
    queue.launch(kernel, queue.over(nest.elements(), (CODE_BLOCK / 32) as u64), &arguments)
}

/// A step's part in a launch for many tensors; nothing if the gradient is not in the parameter's order.
pub(super) fn adam_part<'a>(
    parameter: View<'a>,
    rounded: Option<View<'a>>,
    grad: View<'a>,
    state: [View<'a>; 4],
    step: AdamStep,
) -> Result<Option<(Work<'a>, Part<'a>)>> {
    let types = pair(OP, parameter.dtype, grad.dtype)?;
    let nest = Nest::new([parameter.layout, grad.layout]);
    let kernel = Kernel::new(FILE, "adam_8bit_each", types);
    let work = Work { op: OP, kernel, bytes: BYTES, common: Common::Nothing, numbers: numbers(step) };
    let mut operands = vec![Operand::Written(parameter), Operand::written(rounded), Operand::Read(grad)];
    operands.extend(state.map(Operand::Written));
    Ok(is_in_order(&nest).then_some((work, Part { elements: nest.elements(), operands })))
}

/// `struct CodedStep` in optim_8bit.cu.
fn numbers(step: AdamStep) -> Vec<u64> {
    let mut words = adam_numbers(step);
    for code in [Code::signed(), Code::unsigned()] {
        let pairs = code.values().chunks_exact(2);
        words.extend(pairs.map(|pair| u64::from(pair[0].to_bits()) | u64::from(pair[1].to_bits()) << 32));
    }
    words
}
