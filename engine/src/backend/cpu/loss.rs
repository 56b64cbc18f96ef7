//! Loss: cross-entropy from logits, without a second buffer of their size.

use rayon::prelude::*;

use super::number::{Float, Real, with_float};
use super::rows;
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
        let (width, rows_a_task) = row_sizes(logits);
        let values = logits.storage.read::<T>("cross_entropy")?;
        let labels = targets.storage.read::<i64>("cross_entropy")?;
        let (values, labels) = (part(&values, logits), part(&labels, targets));
        let mut log_sums = statistics.storage.write::<R>("cross_entropy")?;
        let log_sums = part_mut(&mut log_sums, statistics);
        let tasks = values.par_chunks(rows_a_task * width).zip(log_sums.par_chunks_mut(rows_a_task));
        tasks.for_each(|(rows, log_sums)| {
            for (row, log_sum) in rows.chunks(width).zip(log_sums) {
                let (largest, sum) = exponent_sum(row);
                *log_sum = largest + sum.ln();
            }
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
        let (width, rows_a_task) = row_sizes(out);
        let labels = targets.storage.read::<i64>("cross_entropy")?;
        let log_sums = statistics.storage.read::<R>("cross_entropy")?;
        let grad = grad.storage.read::<T>("cross_entropy")?[grad.layout.offset()].load();
        let share = grad / count.storage.read::<R>("cross_entropy")?[count.layout.offset()];
        let known = part(&log_sums, statistics).par_chunks(rows_a_task).zip(part(&labels, targets).par_chunks(rows_a_task));
        let mut memory = out.storage.write::<T>("cross_entropy")?;
        let tasks = part_mut(&mut memory, out).par_chunks_mut(rows_a_task * width).zip(known);
        tasks.for_each(|(rows, (log_sums, labels))| {
            for (row, (&log_sum, &label)) in rows.chunks_mut(width).zip(log_sums.iter().zip(labels)) {
                if label == ignored {
                    row.fill(T::store(R::ZERO));
                    continue;
                }
                let target = usize::try_from(label).ok().filter(|&class| class < row.len());
                let own = target.map(|class| ((row[class].load() - log_sum).exp() - R::ONE) * share);
                rows::shares(row, log_sum, share);
                if let Some((class, own)) = target.zip(own) {
                    row[class] = T::store(own);
                }
            }
        });
        Ok(())
    })
}
