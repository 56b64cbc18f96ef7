//! Column sums of a matrix, computed row by row so that memory is read sequentially.

use std::ops::Range;

use rayon::prelude::*;

use super::ELEMENTS_PER_TASK;
use super::number::Real;

/// Number of columns per task.
const COLUMNS: usize = 256;

/// Computes `N` sums for each column of a matrix of size `[rows, columns]`, where `add(row, columns, sums)` adds part
/// of a row to the sums of its columns. Long matrices are split into parts of rows, whose partial sums are then added
/// in order.
pub(super) fn column_sums<R: Real, const N: usize>(
    [rows, columns]: [usize; 2],
    add: impl Fn(usize, Range<usize>, [&mut [R]; N]) + Sync,
) -> [Vec<R>; N] {
    let blocks = columns.div_ceil(COLUMNS);
    // Enough rows that the partial sums are much smaller than the matrix.
    let rows_per_part = (2 * ELEMENTS_PER_TASK / columns.clamp(1, COLUMNS)).max(1);
    let parts = rows.div_ceil(rows_per_part);
    let tasks = (0..blocks * parts).into_par_iter();
    let small = rows.saturating_mul(columns) <= ELEMENTS_PER_TASK;
    let sums: Vec<[[R; COLUMNS]; N]> = tasks
        .with_min_len(if small { blocks * parts } else { 1 })
        .map(|task| {
            let (part, first) = (task / blocks, task % blocks * COLUMNS);
            let columns = first..columns.min(first + COLUMNS);
            let mut sums = [[R::ZERO; COLUMNS]; N];
            for row in part * rows_per_part..rows.min((part + 1) * rows_per_part) {
                add(row, columns.clone(), sums.each_mut().map(|sums| &mut sums[..columns.len()]));
            }
            sums
        })
        .collect();
    std::array::from_fn(|n| {
        let mut totals = vec![R::ZERO; columns];
        for (task, sums) in sums.iter().enumerate() {
            let first = task % blocks * COLUMNS;
            totals[first..].iter_mut().zip(&sums[n]).for_each(|(total, &sum)| *total += sum);
        }
        totals
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_parts_make_the_sums_of_columns() {
        for [rows, columns] in [[0, 3], [3, 0], [5, 300], [70_000, 3], [300, 515]] {
            let sums = column_sums::<f64, 2>([rows, columns], |row, columns, [ones, products]| {
                for (i, column) in columns.enumerate() {
                    ones[i] += 1.0;
                    products[i] += (row * column) as f64;
                }
            });
            let row_sum = (rows * rows.saturating_sub(1) / 2) as f64;
            assert_eq!(sums[0], vec![rows as f64; columns]);
            assert_eq!(sums[1], (0..columns).map(|column| column as f64 * row_sum).collect::<Vec<_>>());
        }
    }
}
