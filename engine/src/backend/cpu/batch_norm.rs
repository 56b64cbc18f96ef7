//! Batch norm, which normalizes channels over all examples and positions.

use rayon::prelude::*;

use super::elements::{Elements, read, read_if, write};
use super::elementwise::copy_if;
use super::number::{Float, Real, with_float};
use super::rows;
use crate::Result;
use crate::backend::{Spread, View};
use crate::storage::Reading;

const OP: &str = "batch_norm";

/// The sizes of `[batch, channels, …]`, with all remaining axes merged into one.
#[derive(Clone, Copy)]
struct Size {
    batch: usize,
    channels: usize,
    places: usize,
}

impl Size {
    fn of(view: View<'_>) -> Self {
        let shape = view.layout.shape();
        Self { batch: shape[0], channels: shape[1], places: shape[2..].iter().product() }
    }

    /// One slice per example.
    fn lines<T>(self, values: &[T], channel: usize) -> impl Iterator<Item = &[T]> {
        (0..self.batch).map(move |example| &values[(example * self.channels + channel) * self.places..][..self.places])
    }

    fn is_empty(self) -> bool {
        self.batch * self.channels * self.places == 0
    }
}

pub(crate) fn batch_norm_measure(
    mean: View<'_>,
    rstd: View<'_>,
    input: View<'_>,
    running: Option<[View<'_>; 2]>,
    momentum: f64,
    epsilon: f64,
) -> Result<()> {
    with_float!(OP, input.dtype, T => {
        let size = Size::of(input);
        let values = read::<T>(input, OP)?;
        let measured: Vec<[<T as Float>::Real; 2]> =
            (0..size.channels).into_par_iter().map(|channel| measure(size, &values, channel)).collect();
        let count = (size.batch * size.places) as f64;
        let real = <<T as Float>::Real as Real>::of;
        put::<T>(mean, measured.iter().map(|&[mean, _]| mean))?;
        put::<T>(rstd, measured.iter().map(|&[_, variance]| real(1.0) / (variance + real(epsilon)).sqrt()))?;
        let Some([running_mean, running_variance]) = running else { return Ok(()) };
        // The running variance is the unbiased estimate.
        let unbiased = real(count / (count - 1.0));
        approach::<T>(running_mean, measured.iter().map(|&[mean, _]| mean), momentum)?;
        approach::<T>(running_variance, measured.iter().map(|&[_, variance]| variance * unbiased), momentum)
    })
}

fn measure<T: Float>(size: Size, values: &[T], channel: usize) -> [T::Real; 2] {
    let count = T::Real::of((size.batch * size.places) as f64);
    // Partial sums keep the rounding error small.
    let mut total = T::Real::ZERO;
    size.lines(values, channel).for_each(|line| total += rows::sum(line));
    let mean = total / count;
    let mut squares = T::Real::ZERO;
    size.lines(values, channel).for_each(|line| squares += rows::squares(line, mean));
    [mean, squares / count]
}

fn put<T: Float>(out: View<'_>, numbers: impl Iterator<Item = T::Real>) -> Result<()> {
    write::<T::Real>(out, OP)?.iter_mut().zip(numbers).for_each(|(place, number)| *place = number);
    Ok(())
}

fn approach<T: Float>(out: View<'_>, numbers: impl Iterator<Item = T::Real>, momentum: f64) -> Result<()> {
    let (share, rest) = (T::Real::of(momentum), T::Real::of(1.0 - momentum));
    let mut memory = write::<T::Real>(out, OP)?;
    memory.iter_mut().zip(numbers).for_each(|(place, number)| *place = rest * *place + share * number);
    Ok(())
}

struct Statistics<'a, R: Real> {
    memory: [Elements<Reading<'a, R>>; 2],
    spread: Spread,
    channels: usize,
    /// Number of channels of an example that share a statistic; `None` if all examples share one statistic per channel.
    shared: Option<usize>,
}

impl<'a, R: Real> Statistics<'a, R> {
    fn read(views: [View<'a>; 2], spread: Spread, size: Size) -> Result<Self> {
        let memory = [read::<R>(views[0], OP)?, read::<R>(views[1], OP)?];
        let of_groups = || (size.batch * size.channels).checked_div(memory[0].len()).unwrap_or(1);
        let shared = (views[0].layout.shape().rank() > 1).then(of_groups);
        Ok(Self { memory, spread, channels: size.channels, shared })
    }

    /// Returns the mean and 1 / standard deviation for `line`, the index of a channel among those of all examples.
    fn of(&self, line: usize) -> [R; 2] {
        let place = self.shared.map_or(line % self.channels, |channels| line / channels);
        let [mean, spread] = [0, 1].map(|n| self.memory[n][place]);
        match self.spread {
            Spread::Rstd => [mean, spread],
            Spread::Variance { epsilon } => [mean, R::ONE / (spread + R::of(epsilon)).sqrt()],
        }
    }
}

pub(crate) fn batch_norm(
    out: View<'_>,
    input: View<'_>,
    statistics: [View<'_>; 2],
    spread: Spread,
    affine: [Option<View<'_>>; 2],
) -> Result<()> {
    let size = Size::of(input);
    if size.is_empty() {
        return Ok(());
    }
    with_float!(OP, input.dtype, T => {
        type R = <T as Float>::Real;
        let statistics = Statistics::<R>::read(statistics, spread, size)?;
        let (values, mut memory) = (read::<T>(input, OP)?, write::<T>(out, OP)?);
        let (weights, biases) = (read_if::<T>(affine[0], OP)?, read_if::<T>(affine[1], OP)?);
        let lines = memory.par_chunks_mut(size.places).zip(values.par_chunks(size.places)).enumerate();
        lines.for_each(|(line, (out, input))| {
            let channel = line % size.channels;
            let [mean, rstd] = statistics.of(line);
            let weight = weights.as_ref().map_or(R::ONE, |weights| weights[channel].load());
            let bias = biases.as_ref().map_or(R::ZERO, |biases| biases[channel].load());
            for (y, x) in out.iter_mut().zip(input) {
                *y = T::store((x.load() - mean) * rstd * weight + bias);
            }
        });
        Ok(())
    })
}

/// Returns the sum of a channel's gradients, and the sum of their products with the normalized elements, which is 0
/// without `values`.
fn sums<T: Float>(
    size: Size,
    grads: &[T],
    values: Option<&[T]>,
    statistics: &Statistics<'_, T::Real>,
    channel: usize,
) -> [T::Real; 2] {
    let (mut all, mut all_with_input) = (T::Real::ZERO, T::Real::ZERO);
    for (example, grads) in size.lines(grads, channel).enumerate() {
        all += rows::sum(grads);
        let Some(values) = values else { continue };
        let line = example * size.channels + channel;
        let [mean, rstd] = statistics.of(line);
        let values = &values[line * size.places..][..size.places];
        let mut sum = T::Real::ZERO;
        grads.iter().zip(values).for_each(|(g, x)| sum += g.load() * (x.load() - mean));
        all_with_input += sum * rstd;
    }
    [all, all_with_input]
}

pub(crate) fn batch_norm_backward_affine(
    grad: View<'_>,
    input: Option<View<'_>>,
    statistics: [View<'_>; 2],
    spread: Spread,
    affine: [Option<View<'_>>; 2],
) -> Result<()> {
    with_float!(OP, grad.dtype, T => {
        type R = <T as Float>::Real;
        let size = Size::of(grad);
        let statistics = Statistics::<R>::read(statistics, spread, size)?;
        let (grads, values) = (read::<T>(grad, OP)?, read_if::<T>(input, OP)?);
        let (grads, values) = (&*grads, values.as_deref());
        let channels = (0..size.channels).into_par_iter();
        let sums: Vec<[R; 2]> = channels.map(|c| sums(size, grads, values, &statistics, c)).collect();
        for (out, which) in affine.into_iter().zip([1, 0]) {
            let Some(out) = out else { continue };
            for (place, sums) in write::<T>(out, OP)?.iter_mut().zip(&sums) {
                *place = T::store(place.load() + sums[which]);
            }
        }
        Ok(())
    })
}

pub(crate) fn batch_norm_backward(
    out: View<'_>,
    grad: Option<View<'_>>,
    input: Option<View<'_>>,
    statistics: [View<'_>; 2],
    spread: Spread,
    weight: Option<View<'_>>,
) -> Result<()> {
    copy_if(out, grad)?;
    let size = Size::of(out);
    if size.is_empty() {
        return Ok(());
    }
    with_float!(OP, out.dtype, T => {
        type R = <T as Float>::Real;
        let statistics = Statistics::<R>::read(statistics, spread, size)?;
        let (weights, values) = (read_if::<T>(weight, OP)?, read_if::<T>(input, OP)?);
        let (values, mut memory) = (values.as_deref(), write::<T>(out, OP)?);
        let grads = &mut *memory;
        let count = R::of((size.batch * size.places) as f64);
        // If the statistics depend on the input, their gradient: two means over each channel.
        let means: Option<Vec<[R; 2]>> = values.is_some().then(|| {
            let channels = (0..size.channels).into_par_iter();
            channels.map(|c| sums(size, grads, values, &statistics, c).map(|sum| sum / count)).collect()
        });
        grads.par_chunks_mut(size.places).enumerate().for_each(|(line, grads)| {
            let channel = line % size.channels;
            let [mean, rstd] = statistics.of(line);
            let scale = rstd * weights.as_ref().map_or(R::ONE, |weights| weights[channel].load());
            let (Some(values), Some(means)) = (values, &means) else {
                grads.iter_mut().for_each(|g| *g = T::store(g.load() * scale));
                return;
            };
            let [of_grad, of_both] = means[channel];
            for (g, x) in grads.iter_mut().zip(&values[line * size.places..]) {
                *g = T::store(scale * (g.load() - of_grad - (x.load() - mean) * rstd * of_both));
            }
        });
        Ok(())
    })
}
