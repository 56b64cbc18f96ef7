//! Fused Adam step with 8-bit running averages.

use super::number::{Float, Real};
use super::optim::{AdamNumbers, part_mut, with_pair};
use super::split::{ByBlock, in_pieces};
use crate::backend::View;
use crate::backend::code::{CODE_BLOCK, Code};
use crate::backend::nest::Nest;
use crate::backend::step::AdamStep;
use crate::error::Result;

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
    let nest = Nest::new([parameter.layout, grad.layout]);
    let stride = nest.inner_strides()[1];
    let grads = grad.storage.read::<G>(op)?;
    let mut parameters = parameter.storage.write::<T>(op)?;
    let mut copies = rounded.map(|view| view.storage.write::<G>(op)).transpose()?;
    let mut means = mean.storage.write::<u8>(op)?;
    let mut squares = square.storage.write::<u8>(op)?;
    let mut mean_scales = mean_scale.storage.write::<f32>(op)?;
    let mut square_scales = square_scale.storage.write::<f32>(op)?;
    let written = (
        (
            part_mut(&mut parameters, parameter),
            copies.as_mut().zip(rounded).map(|(memory, view)| part_mut(memory, view)),
        ),
        (
            [part_mut(&mut means, mean), part_mut(&mut squares, square)],
            [ByBlock(part_mut(&mut mean_scales, mean_scale)), ByBlock(part_mut(&mut square_scales, square_scale))],
        ),
    );
    let adam = AdamNumbers::<T::Real>::of(step);
    in_pieces(parameter.layout.elements(), written, &|start, length, ((parameters, mut copies), (codes, scales))| {
        let [means, squares] = codes.map(|codes| codes.chunks_mut(CODE_BLOCK));
        let [mean_scales, square_scales] = scales.map(|scales| scales.0.iter_mut());
        let blocks = means.zip(mean_scales).zip(squares.zip(square_scales));
        for (block, ((means, mean_scale), (squares, square_scale))) in blocks.enumerate() {
            let first = block * CODE_BLOCK;
            // A block's dequantized values, while the block is updated.
            let mut full = [[0.0_f32; CODE_BLOCK]; 2];
            decode(Code::signed(), means, *mean_scale, &mut full[0]);
            decode(Code::unsigned(), squares, *square_scale, &mut full[1]);
            let mut place = 0;
            let end = (first + CODE_BLOCK).min(length);
            nest.rows(start + first, start + end, |[_, at], length| {
                for i in 0..length {
                    let moments = [full[0][place], full[1][place]].map(|x| T::Real::of(f64::from(x)));
                    let grad = T::Real::of(grads[at + i * stride].load().wide());
                    let (p, [mean, square]) = adam.step(parameters[first + place].load(), grad, moments);
                    (full[0][place], full[1][place]) = (mean.wide() as f32, square.wide() as f32);
                    parameters[first + place] = T::store(p);
                    if let Some(copies) = &mut copies {
                        copies[first + place] = G::store(Real::of(p.wide()));
                    }
                    place += 1;
                }
            });
            *mean_scale = encode(Code::signed(), &full[0], means, false);
            // If a square were quantized to 0, the next step would divide by almost 0.
            *square_scale = encode(Code::unsigned(), &full[1], squares, true);
        }
    });
    Ok(())
}

fn decode(code: &Code, codes: &[u8], scale: f32, numbers: &mut [f32; CODE_BLOCK]) {
    for (number, &byte) in numbers.iter_mut().zip(codes) {
        *number = code.decode(byte) * scale;
    }
}

/// Quantizes the first `codes.len()` numbers and returns their scale: the largest magnitude. With `keeps_above_zero`, a
/// number above 0 is never quantized to 0.
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
