//! Cross-entropy of some rows of logits, which overwrites the logits with their gradients.

use rayon::prelude::*;

use super::elements::{read, read_one, write};
use super::number::{Float, Real, with_float};
use super::rows::row_sizes;
use super::softmax::exponent_sum;
use crate::backend::View;
use crate::{Error, Result};

pub(crate) fn count_targets(count: View<'_>, targets: View<'_>, ignored: i64) -> Result<()> {
    let op = "count_targets";
    let labels = read::<i64>(targets, op)?;
    let counted = labels.iter().filter(|&&label| label != ignored).count();
    with_float!(op, count.dtype, T => {
        let store = |value: f64| T::store(<T as Float>::Real::of(value));
        let mut memory = write::<T>(count, op)?;
        memory.copy_from_slice(&[store(counted as f64), store(1.0 / counted.max(1) as f64)]);
        Ok(())
    })
}

pub(crate) fn cross_entropy_in_place(
    logits: View<'_>,
    loss: View<'_>,
    known: [View<'_>; 2],
    ignored: i64,
) -> Result<()> {
    let op = "linear_cross_entropy";
    let [count, targets] = known;
    with_float!(op, logits.dtype, T => {
        type R = <T as Float>::Real;
        let (width, _) = row_sizes(logits);
        let labels = read::<i64>(targets, op)?;
        let outside = |&&label: &&i64| label != ignored && !usize::try_from(label).is_ok_and(|class| class < width);
        if let Some(&index) = labels.iter().find(outside) {
            return Err(Error::Index { op, index, size: width });
        }
        let counted = read_one::<R>(count, op)?;
        let mut memory = write::<T>(logits, op)?;
        let rows = memory.par_chunks_mut(width.max(1)).zip(&*labels);
        let losses: Vec<f64> = rows
            .map(|(row, &label)| {
                if label == ignored {
                    row.fill(T::store(R::ZERO));
                    return 0.0;
                }
                let class = label as usize;
                let (largest, sum) = exponent_sum(row);
                let log_sum = largest + sum.ln();
                let loss = (log_sum - row[class].load()).wide();
                for (place, x) in row.iter_mut().enumerate() {
                    let own = if place == class { R::ONE } else { R::ZERO };
                    *x = T::store((x.load() - log_sum).exp() - own);
                }
                loss
            })
            .collect();
        let total = losses.iter().sum::<f64>() / counted.wide();
        let mut sum = loss.storage.write::<R>(op)?;
        let sum = &mut sum[loss.layout.offset()];
        *sum = R::of(sum.wide() + total);
        Ok(())
    })
}
