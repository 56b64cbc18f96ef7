//! Fused Adam step with 8-bit running averages.

use super::optim::{Step, adam_numbers};
use crate::Result;
use crate::backend::View;
use crate::backend::code::{CODE_BLOCK, Code};
use crate::backend::step::AdamStep;

pub(crate) fn adam_8bit(
    parameter: View<'_>,
    rounded: Option<View<'_>>,
    grad: View<'_>,
    state: [View<'_>; 4],
    step: AdamStep,
) -> Result<()> {
    adam_step(parameter, rounded, grad, state, step).run()
}

pub(super) fn adam_step<'a>(
    parameter: View<'a>,
    rounded: Option<View<'a>>,
    grad: View<'a>,
    state: [View<'a>; 4],
    step: AdamStep,
) -> Step<'a> {
    Step {
        op: "adam_8bit",
        file: "optim_8bit",
        kernels: ["adam_8bit_each", "adam_8bit_nest"],
        // The codebooks take more than half of the space for arguments.
        bytes: 1900,
        // A warp processes a block of codes at a time.
        elements_per_thread: CODE_BLOCK / 32,
        parameter,
        rounded,
        grad,
        state: state.map(Some).to_vec(),
        numbers: numbers(step),
    }
}

/// Returns `struct CodedStep` in optim_8bit.cu.
fn numbers(step: AdamStep) -> Vec<u64> {
    let mut words = adam_numbers(step);
    for code in [Code::signed(), Code::unsigned()] {
        let pairs = code.values().chunks_exact(2);
        words.extend(pairs.map(|pair| u64::from(pair[0].to_bits()) | u64::from(pair[1].to_bits()) << 32));
    }
    words
}
