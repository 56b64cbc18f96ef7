//! Fused Adam step with 8-bit running averages.

use rayon::prelude::*;

use super::ELEMENTS_PER_TASK;
use super::cast::cast;
use super::elements::write;
use super::number::{Float, Real};
use super::optim::{AdamNumbers, Gradients, with_pair};
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
    with_pair!("adam_8bit", parameter, grad, T, G => adam_as::<T, G>(parameter, rounded, grad, state, step))
}

fn adam_as<T: Float, G: Float>(
    parameter: View<'_>,
    rounded: Option<View<'_>>,
    grad: View<'_>,
    [mean, square, mean_scale, square_scale]: [View<'_>; 4],
    step: AdamStep,
) -> Result<()> {
    let op = "adam_8bit";
    let grads = Gradients::<G>::read(parameter, grad, op)?;
    let mut parameters = write::<T>(parameter, op)?;
    let [mut means, mut squares] = [write::<u8>(mean, op)?, write::<u8>(square, op)?];
    let [mut mean_scales, mut square_scales] = [write::<f32>(mean_scale, op)?, write::<f32>(square_scale, op)?];
    let adam = AdamNumbers::<T::Real>::of(step);
    let means = means.par_chunks_mut(CODE_BLOCK).zip(&mut *mean_scales);
    let squares = squares.par_chunks_mut(CODE_BLOCK).zip(&mut *square_scales);
    let blocks = parameters.par_chunks_mut(CODE_BLOCK).zip(means.zip(squares)).enumerate();
    let blocks = blocks.with_min_len(ELEMENTS_PER_TASK / CODE_BLOCK);
    blocks.for_each(|(block, (parameters, ((means, mean_scale), (squares, square_scale))))| {
        let mut full = [[0.0_f32; CODE_BLOCK]; 2];
        decode(Code::signed(), means, *mean_scale, &mut full[0]);
        decode(Code::unsigned(), squares, *square_scale, &mut full[1]);
        grads.each(block * CODE_BLOCK, parameters.len(), |place, g| {
            let moments = [full[0][place], full[1][place]].map(|x| T::Real::of(f64::from(x)));
            let (p, [mean, square]) = adam.step(parameters[place].load(), T::Real::of(g.load().wide()), moments);
            parameters[place] = T::store(p);
            (full[0][place], full[1][place]) = (mean.wide() as f32, square.wide() as f32);
        });
        *mean_scale = encode(Code::signed(), &full[0], means, false);
        // If a square were quantized to 0, the next step would divide by almost 0.
        *square_scale = encode(Code::unsigned(), &full[1], squares, true);
    });
    drop(parameters);
    rounded.map_or(Ok(()), |rounded| cast(rounded, parameter))
}

fn decode(code: &Code, codes: &[u8], scale: f32, numbers: &mut [f32; CODE_BLOCK]) {
    for (number, &byte) in numbers.iter_mut().zip(codes) {
        *number = code.decode(byte) * scale;
    }
}

/// Quantizes the first `codes.len()` numbers and returns their scale, which is the largest magnitude. With
/// `keeps_above_zero`, a positive number is never quantized to 0.
fn encode(code: &Code, numbers: &[f32; CODE_BLOCK], codes: &mut [u8], keeps_above_zero: bool) -> f32 {
    let scale = numbers[..codes.len()].iter().fold(0.0_f32, |most, number| most.max(number.abs()));
    let divisor = if scale > 0.0 { scale } else { 1.0 };
    for (byte, &number) in codes.iter_mut().zip(numbers) {
        *byte = code.encode(number / divisor);
        if keeps_above_zero && number > 0.0 {
            *byte = (*byte).max(1);
        }
    }
    scale
}
