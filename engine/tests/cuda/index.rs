//! Row lookups in a table, and their gradients.

use highwater_engine::backend;
use highwater_engine::{DType, Error, Rng, Tensor};

use crate::harness::{Both, FLOATS, Pair, compute, on_both, view};

/// `count` random row numbers of a table.
fn indices(both: &Both, count: usize, rows: usize, seed: u64) -> Pair {
    let numbers = Tensor::uniform(count, [0.0, rows as f64], DType::F64, &both.cpu, &mut Rng::new(seed));
    let numbers = numbers.and_then(|numbers| numbers.to_f64_vec()).expect("numbers");
    both.indices(count, &numbers.into_iter().map(|number| number as i64).collect::<Vec<_>>())
}

#[test]
fn rows_are_picked() {
    on_both(|both| {
        for dtype in FLOATS {
            for [count, rows, columns] in [[77, 50, 5], [3, 9, 264], [40, 7, 1], [5, 3, 8], [0, 3, 4], [300, 2, 1_040]]
            {
                let (table, indices) = (both.normal([rows, columns], dtype, 1), indices(both, count, rows, 2));
                let wide = both.full([count + 2, columns], 3.0, dtype);
                let out = wide.map(|t| t.narrow(0, 1, count));
                compute(|on| backend::gather_rows(view(on(&out)), view(on(&table)), view(on(&indices))));
                wide.assert_equal(&format!("{count} of {rows} rows of {columns}"));
            }
        }
    });
}

#[test]
fn rows_are_added_in_the_order_of_their_indices() {
    on_both(|both| {
        // The same order of additions gives the same bits.
        for dtype in [DType::F64, DType::F32] {
            for [count, rows, columns] in [[77, 50, 5], [3, 9, 264], [400, 7, 12], [600, 1, 3], [1, 1, 1], [0, 3, 4]] {
                let (table, added) = (both.normal([rows, columns], dtype, 1), both.normal([count, columns], dtype, 2));
                assert_added(both, &table, &added, &indices(both, count, rows, 3));
            }
        }
        // Halves are rounded later than on the processor; whole numbers are not rounded.
        for dtype in [DType::Bf16, DType::F16] {
            for [count, rows, columns] in [[77, 50, 5], [400, 7, 24], [600, 1, 8], [90, 20, 520]] {
                let table = both.whole([rows, columns], [-3.0, 4.0], dtype, 1);
                let added = both.whole([count, columns], [-1.0, 2.0], dtype, 2);
                assert_added(both, &table, &added, &indices(both, count, rows, 3));
            }
        }
    });
}

#[test]
fn more_rows_are_added_than_are_looked_at_together() {
    on_both(|both| {
        let (count, rows) = (4_500, 60);
        let (table, added) = (both.normal([rows, 3], DType::F32, 1), both.normal([count, 3], DType::F32, 2));
        assert_added(both, &table, &added, &indices(both, count, rows, 3));
        let all_equal = both.indices(count, &vec![7; count]);
        assert_added(both, &table, &added, &all_equal);
    });
}

#[test]
fn a_stream_without_a_workspace_adds_rows_as_well() {
    on_both(|both| {
        let stream = both.cuda.new_stream().expect("a stream");
        let (table, added) = (both.normal([50, 6], DType::F32, 1), both.normal([310, 6], DType::F32, 2));
        let indices = indices(both, 310, 50, 3);
        let entered = stream.enter();
        assert_added(both, &table, &added, &indices);
        drop(entered);
    });
}

fn assert_added(both: &Both, table: &Pair, added: &Pair, indices: &Pair) {
    let (rows, columns) = (table.cpu.shape()[0], table.cpu.shape()[1]);
    let wide = both.full([rows + 2, columns], 3.0, table.cpu.dtype());
    let inner = wide.map(|t| t.narrow(0, 1, rows));
    compute(|on| backend::copy(view(on(&inner)), view(on(table))));
    compute(|on| backend::add_rows(view(on(&inner)), view(on(added)), view(on(indices))));
    wide.assert_equal(&format!("{} rows of {columns} to {rows}", added.cpu.shape()[0]));
}

#[test]
fn an_index_outside_of_the_table_is_reported_and_its_row_left_alone() {
    on_both(|both| {
        for wrong in [5, -1, i64::MAX, i64::MIN] {
            let table = both.normal([5, 3], DType::F32, 1).cuda;
            let indices = both.indices(3, &[4, wrong, 0]).cuda;
            let out = both.full([3, 3], 9.0, DType::F32).cuda;
            backend::gather_rows(view(&out), view(&table), view(&indices)).expect("a kernel starts");
            assert!(matches!(both.cuda.synchronize(), Err(Error::Index { index, size: 5, .. }) if index == wrong));
            let (found, rows) = (out.to_f64_vec().expect("numbers"), table.to_f64_vec().expect("numbers"));
            assert_eq!(found, [&rows[12..], &[9.0; 3], &rows[..3]].concat());

            backend::add_rows(view(&table), view(&out), view(&indices)).expect("a kernel starts");
            assert!(matches!(table.to_f64_vec(), Err(Error::Index { index, size: 5, .. }) if index == wrong));
            let twice = |row: &[f64]| row.iter().map(|x| 2.0 * x).collect::<Vec<_>>();
            let expected = [&twice(&rows[..3]), &rows[3..12], &twice(&rows[12..])].concat();
            assert_eq!(table.to_f64_vec().expect("a fault is told once"), expected);
        }
    });
}
