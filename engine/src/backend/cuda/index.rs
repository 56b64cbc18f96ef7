//! Selects rows of a table, and adds gradients back to them.

use bytemuck::{Pod, Zeroable};
use highwater_kernels::gpu::launch::THREADS;

use super::buckets::Buckets;
use super::launch::{Launch, WIDE_BYTES, blocks};
use crate::Result;
use crate::backend::View;

const FILE: &str = "index";
const OP: &str = "embedding";
const BLOCK: u64 = THREADS as u64;
const WARP: u64 = 32;

/// The kernel argument `struct Table` in index.cu.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Table {
    rows: u64,
    columns: u64,
    count: u64,
    across: u64,
}

/// Returns the number of elements of a row that a thread processes at a time, for contiguous rows of `columns`
/// elements.
fn width(launch: &Launch<'_>, table: View<'_>, columns: u64) -> u64 {
    let width = (WIDE_BYTES / table.dtype.size()) as u64;
    if launch.is_aligned(WIDE_BYTES) && columns.is_multiple_of(width) { width } else { 1 }
}

pub(crate) fn gather_rows(out: View<'_>, table: View<'_>, indices: View<'_>) -> Result<()> {
    let launch = Launch::of_floats(OP, out)?.write(out)?.read(table)?;
    let [rows, columns] = [0, 1].map(|axis| table.layout.shape()[axis] as u64);
    let width = width(&launch, table, columns);
    let across = columns.div_ceil(width).next_power_of_two().min(BLOCK);
    let (count, fault) = (indices.layout.elements() as u64, launch.queue.gpu().fault_address());
    let launch = launch.read(indices)?.with(count).with(rows).with(columns).with(across as u32).with(fault);
    let name = if width == 1 { "gather_rows" } else { "gather_rows_wide" };
    launch.grid(blocks(count.div_ceil(BLOCK / across), 1)).run(FILE, name)
}

pub(crate) fn add_rows(table: View<'_>, added: View<'_>, indices: View<'_>) -> Result<()> {
    add_rows_by(table, added, indices, &Buckets::of(table.storage.device()))
}

fn add_rows_by(table: View<'_>, added: View<'_>, indices: View<'_>, buckets: &Buckets) -> Result<()> {
    let [rows, columns] = [0, 1].map(|axis| table.layout.shape()[axis] as u64);
    for part in buckets.parts(indices.layout.elements() as u64) {
        let mut launch = Launch::of_floats(OP, table)?;
        let first_index = launch.lend(indices)? + part.first * size_of::<i64>() as u64;
        let fault = launch.queue.gpu().fault_address();
        let launch = launch.with(buckets.address()).with(first_index).with(part.count).with(rows);
        let launch = launch.with(part.buckets() as u32).with(fault).over(part.count as usize, 1);
        launch.run(FILE, "bucket_rows")?;

        let mut launch = Launch::new(OP, table)?.write(table)?;
        let [from, first_index] = [launch.lend(added)?, launch.lend(indices)? + part.first * size_of::<i64>() as u64];
        let width = if from.is_multiple_of(WIDE_BYTES as u64) { width(&launch, table, columns) } else { 1 };
        let across = columns.div_ceil(WARP * width).next_power_of_two().min(BLOCK / WARP);
        let launch = launch.with(from + part.first * columns * table.dtype.size() as u64).with(first_index);
        let launch = launch.with(buckets.address()).with(Table { rows, columns, count: part.count, across });
        launch.grid(part.grid()).run(FILE, if width == 1 { "add_rows" } else { "add_rows_wide" })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use highwater_stand_in::Setup;

    use super::*;
    use crate::device::Device;
    use crate::tensor::Tensor;

    #[test]
    fn indices_that_there_is_no_room_for_are_taken_in_parts() {
        Setup::new().run(|| {
            let device = Device::cuda(0).expect("there is a device");
            let tensor = |numbers: &[f32], shape| Tensor::from_slice(numbers, shape, &device).expect("there is room");
            let table = tensor(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [3, 2]);
            let added = tensor(&std::array::from_fn::<f32, 20, _>(|place| place as f32), [10, 2]);
            let indices = [2_i64, 0, 2, 2, 0, 0, 2, 0, 0, 2];
            let places = Tensor::from_slice(&indices, [10], &device).expect("there is room");
            let buckets = Buckets::small(&device, 4);
            add_rows_by(table.view(), added.view(), places.view(), &buckets).expect("kernels start");
            let expected = [1.0 + 50.0, 2.0 + 55.0, 3.0, 4.0, 5.0 + 40.0, 6.0 + 45.0];
            assert_eq!(table.to_vec::<f32>().expect("numbers"), expected);
        });
    }
}
