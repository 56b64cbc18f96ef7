//! Fused optimizer steps, which read and write each element of parameter, gradient and state once.

use super::number::{Float, Real};
use super::split::in_pieces;
use crate::backend::View;
use crate::backend::nest::Nest;
use crate::backend::step::{AdamStep, SgdStep};
use crate::error::Result;
use crate::storage::Writing;

/// Runs `$body` with `$T` as the type of the parameter's elements and `$G` of the gradient's: the same, or the
/// parameter is f32 and the gradient narrower.
macro_rules! with_pair {
    ($op:expr, $parameter:expr, $grad:expr, $T:ident, $G:ident => $body:expr) => {
        match ($parameter.dtype, $grad.dtype) {
            ($crate::dtype::DType::F32, $crate::dtype::DType::Bf16) => {
                type $T = f32;
                type $G = half::bf16;
                $body
            }
            ($crate::dtype::DType::F32, $crate::dtype::DType::F16) => {
                type $T = f32;
                type $G = half::f16;
                $body
            }
            (parameter, grad) if parameter == grad => super::number::with_float!($op, parameter, $T => {
                type $G = $T;
                $body
            }),
            (_, found) => Err($crate::error::Error::DType {
                op: $op,
                found,
                need: "expected a gradient of the parameter's dtype, or bf16 or f16 for f32 parameters",
            }),
        }
    };
}
pub(super) use with_pair;

/// Returns the elements of a contiguous view, to write.
pub(super) fn part_mut<'a, T: bytemuck::Pod>(memory: &'a mut Writing<'_, T>, view: View<'_>) -> &'a mut [T] {
    let first = view.layout.offset();
    &mut memory[first..first + view.layout.elements()]
}

pub(crate) fn sgd(
    parameter: View<'_>,
    rounded: Option<View<'_>>,
    grad: View<'_>,
    direction: Option<View<'_>>,
    step: SgdStep,
) -> Result<()> {
    with_pair!("sgd", parameter, grad, T, G => sgd_as::<T, G>(parameter, rounded, grad, direction, step))
}

fn sgd_as<T: Float, G: Float>(
    parameter: View<'_>,
    rounded: Option<View<'_>>,
    grad: View<'_>,
    direction: Option<View<'_>>,
    step: SgdStep,
) -> Result<()> {
    let op = "sgd";
    let nest = Nest::new([parameter.layout, grad.layout]);
    let stride = nest.inner_strides()[1];
    let grads = grad.storage.read::<G>(op)?;
    let mut parameters = parameter.storage.write::<T>(op)?;
    let mut directions = direction.map(|view| view.storage.write::<T>(op)).transpose()?;
    let mut copies = rounded.map(|view| view.storage.write::<G>(op)).transpose()?;
    let written = (
        part_mut(&mut parameters, parameter),
        (
            directions.as_mut().zip(direction).map(|(memory, view)| part_mut(memory, view)),
            copies.as_mut().zip(rounded).map(|(memory, view)| part_mut(memory, view)),
        ),
    );
    let [rate, momentum, entering, decay, scale] =
        [step.learning_rate, step.momentum, 1.0 - step.dampening, step.weight_decay, step.grad_scale].map(T::Real::of);
    in_pieces(parameter.layout.elements(), written, &|start, length, (parameters, (mut directions, mut copies))| {
        let mut place = 0;
        nest.rows(start, start + length, |[_, at], length| {
            for i in 0..length {
                let p = parameters[place].load();
                let mut g = T::Real::of(grads[at + i * stride].load().wide()) * scale;
                g += decay * p;
                let mut way = g;
                if let Some(directions) = &mut directions {
                    let b = if step.is_first { g } else { momentum * directions[place].load() + entering * g };
                    directions[place] = T::store(b);
                    way = if step.nesterov { g + momentum * b } else { b };
                }
                let p = p - rate * way;
                parameters[place] = T::store(p);
                if let Some(copies) = &mut copies {
                    copies[place] = G::store(Real::of(p.wide()));
                }
                place += 1;
            }
        });
    });
    Ok(())
}

pub(crate) fn adam(
    parameter: View<'_>,
    rounded: Option<View<'_>>,
    grad: View<'_>,
    moments: [View<'_>; 2],
    step: AdamStep,
) -> Result<()> {
    with_pair!("adam", parameter, grad, T, G => adam_as::<T, G>(parameter, rounded, grad, moments, step))
}

fn adam_as<T: Float, G: Float>(
    parameter: View<'_>,
    rounded: Option<View<'_>>,
    grad: View<'_>,
    moments: [View<'_>; 2],
    step: AdamStep,
) -> Result<()> {
    let op = "adam";
    let nest = Nest::new([parameter.layout, grad.layout]);
    let stride = nest.inner_strides()[1];
    let grads = grad.storage.read::<G>(op)?;
    let mut parameters = parameter.storage.write::<T>(op)?;
    let mut means = moments[0].storage.write::<T>(op)?;
    let mut squares = moments[1].storage.write::<T>(op)?;
    let mut copies = rounded.map(|view| view.storage.write::<G>(op)).transpose()?;
    let written = (
        (
            part_mut(&mut parameters, parameter),
            copies.as_mut().zip(rounded).map(|(memory, view)| part_mut(memory, view)),
        ),
        [part_mut(&mut means, moments[0]), part_mut(&mut squares, moments[1])],
    );
    let adam = AdamNumbers::<T::Real>::of(step);
    in_pieces(parameter.layout.elements(), written, &|start, length, ((parameters, mut copies), [means, squares])| {
        let mut place = 0;
        nest.rows(start, start + length, |[_, at], length| {
            for i in 0..length {
                let moments = [means[place].load(), squares[place].load()];
                let grad = T::Real::of(grads[at + i * stride].load().wide());
                let (p, [mean, square]) = adam.step(parameters[place].load(), grad, moments);
                means[place] = T::store(mean);
                squares[place] = T::store(square);
                parameters[place] = T::store(p);
                if let Some(copies) = &mut copies {
                    copies[place] = G::store(Real::of(p.wide()));
                }
                place += 1;
            }
        });
    });
    Ok(())
}

/// An [`AdamStep`] in the type of arithmetic.
pub(super) struct AdamNumbers<R> {
    rate: R,
    entering: [R; 2],
    keep_square: R,
    square_scale: R,
    epsilon: R,
    weight_decay: R,
    keep: R,
    grad_scale: R,
}

impl<R: Real> AdamNumbers<R> {
    pub(super) fn of(step: AdamStep) -> Self {
        Self {
            rate: R::of(step.rate),
            entering: step.betas.map(|beta| R::of(1.0 - beta)),
            keep_square: R::of(step.betas[1]),
            square_scale: R::of(step.square_scale),
            epsilon: R::of(step.epsilon),
            weight_decay: R::of(step.weight_decay),
            keep: R::of(step.keep),
            grad_scale: R::of(step.grad_scale),
        }
    }

    /// Returns the new parameter and the new averages.
    #[inline]
    pub(super) fn step(&self, parameter: R, grad: R, [mean, square]: [R; 2]) -> (R, [R; 2]) {
        let grad = grad * self.grad_scale + self.weight_decay * parameter;
        let mean = mean + self.entering[0] * (grad - mean);
        let square = self.keep_square * square + self.entering[1] * grad * grad;
        let divisor = square.sqrt() * self.square_scale + self.epsilon;
        (self.keep * parameter - self.rate * mean / divisor, [mean, square])
    }
}
