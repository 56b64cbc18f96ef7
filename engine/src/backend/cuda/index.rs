//! Selects rows of a table, and adds gradients back to them.

use bytemuck::{Pod, Zeroable};
use highwater_kernels::gpu::launch::THREADS;
use highwater_kernels::{Arguments, Kernel};

use super::buckets::Buckets;
use super::launch::{Place, Queue, blocks, check_float, reading, types, writing};
use crate::backend::View;
use crate::error::Result;

const FILE: &str = "index";
const BLOCK: u64 = THREADS as u64;
const WARP: u64 = 32;

/// `struct Table` in index.cu.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Table {
    rows: u64,
    columns: u64,
    count: u64,
    across: u64,
}

/// Elements of a row that a thread takes at a time, where rows of `columns` begin at these places.
fn width(view: View<'_>, columns: u64, places: [&Place<'_>; 2]) -> u64 {
    let width = 16 / view.dtype.size() as u64;
    let is_wide = places.into_iter().all(Place::is_wide) && columns.is_multiple_of(width);
    if is_wide { width } else { 1 }
}

pub(crate) fn gather_rows(out: View<'_>, table: View<'_>, indices: View<'_>) -> Result<()> {
    let op = "embedding";
    check_float(op, out.dtype)?;
    let queue = Queue::of(out.storage.device(), op)?;
    let [rows, columns] = [0, 1].map(|axis| table.layout.shape()[axis] as u64);
    let (from, at, to) = (reading(table, op)?, reading(indices, op)?, writing(out, op)?);
    let width = width(table, columns, [&from, &to]);
    let across = columns.div_ceil(width).next_power_of_two().min(BLOCK);
    let count = indices.layout.elements() as u64;
    let arguments = Arguments::new()
        .with(to.address())
        .with(from.address())
        .with(at.address())
        .with(count)
        .with(rows)
        .with(columns)
        .with(across as u32)
        .with(queue.gpu().fault_address());
    let name = if width == 1 { "gather_rows" } else { "gather_rows_wide" };
    queue.launch(Kernel::new(FILE, name, types(out.dtype)), blocks(count.div_ceil(BLOCK / across), 1), &arguments)
}

pub(crate) fn add_rows(table: View<'_>, added: View<'_>, indices: View<'_>) -> Result<()> {
    add_rows_by(table, added, indices, &Buckets::of(table.storage.device()))
}

fn add_rows_by(table: View<'_>, added: View<'_>, indices: View<'_>, buckets: &Buckets) -> Result<()> {
    let op = "embedding";
    check_float(op, table.dtype)?;
    let queue = Queue::of(table.storage.device(), op)?;
    let [rows, columns] = [0, 1].map(|axis| table.layout.shape()[axis] as u64);
    let (from, at, to) = (reading(added, op)?, reading(indices, op)?, writing(table, op)?);
    let width = width(table, columns, [&from, &to]);
    let kernel = |name| Kernel::new(FILE, name, types(table.dtype));
    let across = columns.div_ceil(WARP * width).next_power_of_two().min(BLOCK / WARP);
    for part in buckets.parts(indices.layout.elements() as u64) {
        let indices = at.address() + part.first * size_of::<i64>() as u64;
        let added = from.address() + part.first * columns * table.dtype.size() as u64;
        let arguments = Arguments::new()
            .with(buckets.address())
            .with(indices)
            .with(part.count)
            .with(rows)
            .with(part.buckets() as u32)
            .with(queue.gpu().fault_address());
        queue.launch(kernel("bucket_rows"), queue.over(part.count as usize, 1), &arguments)?;
        let arguments = Arguments::new()
            .with(to.address())
            .with(added)
            .with(indices)
            .with(buckets.address())
            .with(Table { rows, columns, count: part.count, across });
        queue.launch(kernel(if width == 1 { "add_rows" } else { "add_rows_wide" }), part.grid(), &arguments)?;
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
