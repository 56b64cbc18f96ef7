//! Fused optimizer steps, which read and write each element of parameter, gradient and state once.

use rayon::prelude::*;

use super::ELEMENTS_PER_TASK;
use super::cast::cast;
use super::elements::write;
use super::number::{Float, Real};
use crate::Result;
use crate::backend::step::{AdamStep, SgdStep};
use crate::backend::{Nest, View};
use crate::storage::Reading;

/// Runs `$body` with `$T` as the type of the parameter's elements and `$G` as that of the gradient's. Both are the
/// same, or the parameter is f32 and the gradient has a narrower type.
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
    let grads = Gradients::<G>::read(parameter, grad, op)?;
    let mut parameters = write::<T>(parameter, op)?;
    let [rate, momentum, entering, decay, scale] =
        [step.learning_rate, step.momentum, 1.0 - step.dampening, step.weight_decay, step.grad_scale].map(T::Real::of);
    let slope = |p: &T, g: G| T::Real::of(g.load().wide()) * scale + decay * p.load();
    let tasks = parameters.par_chunks_mut(ELEMENTS_PER_TASK).enumerate();
    match direction {
        None => tasks.for_each(|(task, parameters)| {
            grads.each(task * ELEMENTS_PER_TASK, parameters.len(), |place, g| {
                let p = &mut parameters[place];
                *p = T::store(p.load() - rate * slope(p, g));
            });
        }),
        Some(direction) => {
            let mut directions = write::<T>(direction, op)?;
            tasks.zip(directions.par_chunks_mut(ELEMENTS_PER_TASK)).for_each(|((task, parameters), directions)| {
                grads.each(task * ELEMENTS_PER_TASK, parameters.len(), |place, g| {
                    let (p, b) = (&mut parameters[place], &mut directions[place]);
                    let g = slope(p, g);
                    let new = if step.is_first { g } else { momentum * b.load() + entering * g };
                    let way = if step.nesterov { g + momentum * new } else { new };
                    (*p, *b) = (T::store(p.load() - rate * way), T::store(new));
                });
            });
        }
    }
    drop(parameters);
    rounded.map_or(Ok(()), |rounded| cast(rounded, parameter))
}

/// A gradient in any layout, in the order of the parameter's elements.
pub(super) struct Gradients<'a, G> {
    memory: Reading<'a, G>,
    nest: Nest<2>,
}

impl<'a, G: Float> Gradients<'a, G> {
    pub(super) fn read(parameter: View<'_>, grad: View<'a>, op: &'static str) -> Result<Self> {
        Ok(Self { memory: grad.storage.read::<G>(op)?, nest: Nest::new([parameter.layout, grad.layout]) })
    }

    /// Calls `element(place, gradient)` for `count` elements, beginning with element `start`. `place` counts from
    /// `start`.
    pub(super) fn each(&self, start: usize, count: usize, mut element: impl FnMut(usize, G)) {
        let stride = self.nest.inner_strides()[1];
        let mut done = 0;
        self.nest.rows(start, start + count, |[_, at], length| {
            (0..length).for_each(|i| element(done + i, self.memory[at + i * stride]));
            done += length;
        });
    }
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
    let grads = Gradients::<G>::read(parameter, grad, op)?;
    let mut parameters = write::<T>(parameter, op)?;
    let (mut means, mut squares) = (write::<T>(moments[0], op)?, write::<T>(moments[1], op)?);
    let adam = AdamNumbers::<T::Real>::of(step);
    let moments = means.par_chunks_mut(ELEMENTS_PER_TASK).zip(squares.par_chunks_mut(ELEMENTS_PER_TASK));
    let tasks = parameters.par_chunks_mut(ELEMENTS_PER_TASK).zip(moments).enumerate();
    tasks.for_each(|(task, (parameters, (means, squares)))| {
        grads.each(task * ELEMENTS_PER_TASK, parameters.len(), |place, g| {
            let moments = [means[place].load(), squares[place].load()];
            let (p, [mean, square]) = adam.step(parameters[place].load(), T::Real::of(g.load().wide()), moments);
            parameters[place] = T::store(p);
            (means[place], squares[place]) = (T::store(mean), T::store(square));
        });
    });
    drop(parameters);
    rounded.map_or(Ok(()), |rounded| cast(rounded, parameter))
}

/// An [`AdamStep`] in the type used for arithmetic.
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

    #[inline]
    pub(super) fn step(&self, parameter: R, grad: R, [mean, square]: [R; 2]) -> (R, [R; 2]) {
        let grad = grad * self.grad_scale + self.weight_decay * parameter;
        let mean = mean + self.entering[0] * (grad - mean);
        let square = self.keep_square * square + self.entering[1] * grad * grad;
        let divisor = square.sqrt() * self.square_scale + self.epsilon;
        (self.keep * parameter - self.rate * mean / divisor, [mean, square])
    }
}
