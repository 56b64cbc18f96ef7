//! Cross-entropy from logits, and its gradient, without a buffer for the softmax.

use rayon::prelude::*;

use super::elements::{read, read_one, write};
use super::elementwise::copy_if;
use super::number::{Float, Real, with_float};
use super::rows;
use super::softmax::exponent_sum;
use crate::backend::View;
use crate::{Error, Result};

const OP: &str = "cross_entropy";

pub(crate) fn cross_entropy(
    loss: View<'_>,
    statistics: View<'_>,
    count: View<'_>,
    logits: View<'_>,
    targets: View<'_>,
    ignored: i64,
) -> Result<()> {
    let size = Size::of(logits);
    with_float!(OP, logits.dtype, T => {
        type R = <T as Float>::Real;
        let values = read::<T>(logits, OP)?;
        let labels = read::<i64>(targets, OP)?;
        let mut log_sums = write::<R>(statistics, OP)?;
        size.log_sums(&values, &mut log_sums);
        let (mut total, mut counted) = (0.0, 0_usize);
        for (place, (&log_sum, &label)) in log_sums.iter().zip(&*labels).enumerate() {
            if label == ignored {
                continue;
            }
            let class = usize::try_from(label).ok().filter(|&class| class < size.classes);
            let class = class.ok_or(Error::Index { op: OP, index: label, size: size.classes })?;
            total += (log_sum - values[size.at(place, class)].load()).wide();
            counted += 1;
        }
        loss.storage.write::<T>(OP)?[loss.layout.offset()] = T::store(R::of(total / counted as f64));
        count.storage.write::<R>(OP)?[count.layout.offset()] = R::of(counted as f64);
        Ok(())
    })
}

pub(crate) fn cross_entropy_backward(
    out: View<'_>,
    logits: Option<View<'_>>,
    known: [View<'_>; 3],
    targets: View<'_>,
    ignored: i64,
) -> Result<()> {
    copy_if(out, logits)?;
    let [grad, statistics, count] = known;
    let size = Size::of(out);
    with_float!(OP, out.dtype, T => {
        type R = <T as Float>::Real;
        let labels = read::<i64>(targets, OP)?;
        let log_sums = read::<R>(statistics, OP)?;
        let share = read_one::<T>(grad, OP)?.load() / read_one::<R>(count, OP)?;
        let mut memory = write::<T>(out, OP)?;
        let lines = memory.par_chunks_mut(size.line()).enumerate();
        let slope = |x: T, log_sum: R, own: bool| {
            T::store(((x.load() - log_sum).exp() - if own { R::ONE } else { R::ZERO }) * share)
        };
        lines.for_each(|(line, numbers)| {
            if size.places == 1 {
                // The line contains all classes of one position.
                let (label, log_sum) = (labels[line], log_sums[line]);
                if label == ignored {
                    return numbers.fill(T::store(R::ZERO));
                }
                let target = usize::try_from(label).ok().filter(|&class| class < numbers.len());
                let own = target.map(|class| slope(numbers[class], log_sum, true));
                rows::shares(numbers, log_sum, share);
                if let Some((class, own)) = target.zip(own) {
                    numbers[class] = own;
                }
                return;
            }
            // The line contains one class at all positions of an example.
            let (first, class) = (line / size.classes * size.places, (line % size.classes) as i64);
            let known = labels[first..].iter().zip(&log_sums[first..]);
            for (x, (&label, &log_sum)) in numbers.iter_mut().zip(known) {
                *x = if label == ignored { T::store(R::ZERO) } else { slope(*x, log_sum, class == label) };
            }
        });
        Ok(())
    })
}

/// The sizes of logits `[examples, classes, …]`, with all positions of an example merged into one axis.
#[derive(Clone, Copy)]
struct Size {
    classes: usize,
    places: usize,
}

impl Size {
    fn of(logits: View<'_>) -> Self {
        let shape = logits.layout.shape();
        Self { classes: shape[1], places: shape[2..].iter().product() }
    }

    /// Returns the length of a contiguous line of classes or positions. It is at least 1, because chunks must not be
    /// empty.
    fn line(self) -> usize {
        (if self.places == 1 { self.classes } else { self.places }).max(1)
    }

    /// Returns the index of the logit of `class` at position `place`, counted over all examples.
    fn at(self, place: usize, class: usize) -> usize {
        (place / self.places * self.classes + class) * self.places + place % self.places
    }

    fn log_sums<T: Float>(self, logits: &[T], out: &mut [T::Real]) {
        if self.places == 1 {
            logits.par_chunks(self.line()).zip(out.par_iter_mut()).for_each(|(row, log_sum)| {
                let (largest, sum) = exponent_sum(row);
                *log_sum = largest + sum.ln();
            });
            return;
        }
        /// Number of positions whose sums are accumulated together, so that memory is read in whole cache lines.
        const PLACES: usize = 256;
        out.par_chunks_mut(self.places.max(1)).enumerate().for_each(|(example, out)| {
            out.par_chunks_mut(PLACES).enumerate().for_each(|(part, out)| {
                let lines = || {
                    let first = example * self.classes * self.places + part * PLACES;
                    (0..self.classes).map(move |class| &logits[first + class * self.places..])
                };
                let mut largest = [T::Real::LEAST; PLACES];
                for line in lines() {
                    largest.iter_mut().zip(line).take(out.len()).for_each(|(most, x)| *most = most.largest(x.load()));
                }
                let mut sums = [T::Real::ZERO; PLACES];
                for line in lines() {
                    let numbers = line.iter().zip(&largest).take(out.len());
                    sums.iter_mut().zip(numbers).for_each(|(sum, (x, &most))| *sum += (x.load() - most).exp());
                }
                let known = largest.iter().zip(&sums);
                out.iter_mut().zip(known).for_each(|(log_sum, (&most, &sum))| *log_sum = most + sum.ln());
            });
        });
    }
}
