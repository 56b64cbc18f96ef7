//! Loss: cross-entropy from logits, without a second buffer of their size.

use rayon::prelude::*;

use super::number::{Float, Real, with_float};
use super::softmax::{exponent_sum, part, part_mut, row_sizes};
use crate::backend::View;
use crate::error::{Error, Result};

/// See [`crate::backend::cross_entropy`].
pub fn cross_entropy(
    loss: View<'_>,
    statistics: View<'_>,
    count: View<'_>,
    logits: View<'_>,
    targets: View<'_>,
    ignored: i64,
) -> Result<()> {
    with_float!("cross_entropy", logits.dtype, T => {
        type R = <T as Float>::Real;
        let (width, _) = row_sizes(logits);
        let values = logits.storage.read::<T>("cross_entropy")?;
        let labels = targets.storage.read::<i64>("cross_entropy")?;
        let (values, labels) = (part(&values, logits), part(&labels, targets));
        let mut log_sums = statistics.storage.write::<R>("cross_entropy")?;
        let log_sums = part_mut(&mut log_sums, statistics);
        values.par_chunks(width).zip(log_sums.par_iter_mut()).for_each(|(row, log_sum)| {
            let (largest, sum) = exponent_sum(row);
            *log_sum = largest + sum.ln();
        });
        let (mut total, mut counted) = (0.0, 0_usize);
        for ((row, &log_sum), &label) in values.chunks(width).zip(log_sums.iter()).zip(labels) {
            if label == ignored {
                continue;
            }
            let class = usize::try_from(label).ok().filter(|&class| class < row.len());
            let class = class.ok_or(Error::Index { op: "cross_entropy", index: label, size: row.len() })?;
            total += (log_sum - row[class].load()).wide();
            counted += 1;
        }
        loss.storage.write::<T>("cross_entropy")?[loss.layout.offset()] = T::store(R::of(total / counted as f64));
        count.storage.write::<R>("cross_entropy")?[count.layout.offset()] = R::of(counted as f64);
        Ok(())
    })
}

/// See [`crate::backend::cross_entropy_backward`].
pub fn cross_entropy_backward(
    out: View<'_>,
    logits: Option<View<'_>>,
    known: [View<'_>; 3],
    targets: View<'_>,
    ignored: i64,
) -> Result<()> {
    if let Some(logits) = logits {
        super::elementwise::copy(out, logits)?;
    }
    let [grad, statistics, count] = known;
    with_float!("cross_entropy", out.dtype, T => {
        type R = <T as Float>::Real;
        let (width, _) = row_sizes(out);
        let labels = targets.storage.read::<i64>("cross_entropy")?;
        let log_sums = statistics.storage.read::<R>("cross_entropy")?;
        let grad = grad.storage.read::<T>("cross_entropy")?[grad.layout.offset()].load();
        let share = grad / count.storage.read::<R>("cross_entropy")?[count.layout.offset()];
        let rows = part(&log_sums, statistics).par_iter().zip(part(&labels, targets));
        let mut memory = out.storage.write::<T>("cross_entropy")?;
        part_mut(&mut memory, out).par_chunks_mut(width).zip(rows).for_each(|(row, (&log_sum, &label))| {
            if label == ignored {
                row.fill(T::store(R::ZERO));
                return;
            }
            for (class, x) in row.iter_mut().enumerate() {
                let own = if class as i64 == label { R::ONE } else { R::ZERO };
                *x = T::store(((x.load() - log_sum).exp() - own) * share);
            }
        });
        Ok(())
    })
}
