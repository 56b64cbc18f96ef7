//! Cross-entropy from logits, without a second buffer of their size.

use highwater_kernels::gpu::launch::THREADS;
use highwater_kernels::{Arguments, Grid, Kernel};

use super::launch::{Queue, check_float, reading, types, writing};
use super::parts::Parts;
use super::rows::{Rows, in_order};
use crate::backend::View;
use crate::error::Result;

const FILE: &str = "loss";
const OP: &str = "cross_entropy";

/// Logits `[examples, classes, …]`, all places of an example in one.
#[derive(Clone, Copy)]
struct Size {
    /// Of all examples.
    all_places: u64,
    classes: u64,
    /// Of an example.
    places: u64,
}

impl Size {
    fn of(logits: View<'_>, targets: View<'_>) -> Self {
        let shape = logits.layout.shape();
        let places: usize = shape[2..].iter().product();
        Self { all_places: targets.layout.elements() as u64, classes: shape[1] as u64, places: places as u64 }
    }

    /// How many threads share a place whose classes lie apart: a power of two, more where places are few.
    fn slices(self, processors: u32) -> u32 {
        const MOST: u32 = 8;
        let busy = u64::from(processors) * 4 * u64::from(THREADS);
        let mut slices = 1;
        while slices < MOST && self.all_places * u64::from(slices) < busy && u64::from(2 * slices) <= self.classes {
            slices *= 2;
        }
        slices
    }
}

pub(crate) fn cross_entropy(
    loss: View<'_>,
    statistics: View<'_>,
    count: View<'_>,
    logits: View<'_>,
    targets: View<'_>,
    ignored: i64,
) -> Result<()> {
    check_float(OP, logits.dtype)?;
    let queue = Queue::of(loss.storage.device(), OP)?;
    let kernel = |name| Kernel::new(FILE, name, types(logits.dtype));
    let size = Size::of(logits, targets);
    let (values, labels) = (reading(logits, OP)?, reading(targets, OP)?);
    let (total, log_sums, counted) = (writing(loss, OP)?, writing(statistics, OP)?, writing(count, OP)?);

    let arguments = Arguments::new().with(log_sums.address()).with(values.address());
    if size.places == 1 {
        let rows = Rows::new(&queue, [size.all_places, size.classes], logits.dtype);
        queue.launch(kernel("log_sums_of_rows"), rows.grid(), &rows.with(arguments))?;
    } else {
        let slices = size.slices(queue.gpu().processors());
        let grid = queue.over((size.all_places * u64::from(slices)) as usize, 1);
        let arguments = arguments.with(size.all_places).with(size.classes).with(size.places).with(slices);
        queue.launch(kernel("log_sums_of_places"), grid, &arguments)?;
    }

    // Places that a thread looks up, eight at least: what it costs is to wait for them.
    let parts = Parts::new(&queue, queue.over(size.all_places as usize, 8), 2);
    let arguments = parts
        .with(Arguments::new().with(total.address()).with(counted.address()))
        .with(values.address())
        .with(log_sums.address())
        .with(labels.address())
        .with(size.all_places)
        .with(size.classes)
        .with(size.places)
        .with(ignored)
        .with(queue.gpu().fault_address());
    queue.launch(kernel("cross_entropy"), parts.grid(), &arguments)?;
    let first = Arguments::new().with(total.address()).with(counted.address());
    parts.end(&queue, kernel("end_cross_entropy"), first, |arguments| arguments)
}

pub(crate) fn cross_entropy_backward(
    out: View<'_>,
    logits: Option<View<'_>>,
    known: [View<'_>; 3],
    targets: View<'_>,
    ignored: i64,
) -> Result<()> {
    check_float(OP, out.dtype)?;
    let queue = Queue::of(out.storage.device(), OP)?;
    let size = Size::of(out, targets);
    let values = in_order(out, logits)?.map(|logits| reading(logits, OP)).transpose()?;
    let (grad, log_sums, count) = (reading(known[0], OP)?, reading(known[1], OP)?, reading(known[2], OP)?);
    let (labels, to) = (reading(targets, OP)?, writing(out, OP)?);
    let from = values.as_ref().unwrap_or(&to);
    let arguments = Arguments::new()
        .with(to.address())
        .with(from.address())
        .with(grad.address())
        .with(log_sums.address())
        .with(count.address())
        .with(labels.address())
        .with(ignored);
    if size.places == 1 {
        let rows = Rows::new(&queue, [size.all_places, size.classes], out.dtype);
        let kernel = Kernel::new(FILE, "cross_entropy_backward_of_rows", types(out.dtype));
        return queue.launch(kernel, rows.grid(), &rows.with(arguments));
    }
    let pack = 16 / out.dtype.size() as u64;
    let is_wide = size.places.is_multiple_of(pack) && to.is_wide() && from.is_wide();
    let elements = out.layout.elements();
    let grid: Grid = queue.over(elements, if is_wide { pack } else { 1 });
    let arguments = arguments.with(elements as u64).with(size.classes).with(size.places).with(u32::from(is_wide));
    queue.launch(Kernel::new(FILE, "cross_entropy_backward_of_places", types(out.dtype)), grid, &arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_places_are_shared_by_several_threads_if_there_are_classes_for_them() {
        let slices = |all_places, classes| Size { all_places, classes, places: 2 }.slices(132);
        assert_eq!(slices(8192, 50257), 8);
        assert_eq!(slices(8192, 3), 2);
        assert_eq!(slices(100_000, 50257), 2);
        assert_eq!(slices(1 << 20, 21), 1);
        assert_eq!(slices(10, 1), 1);
    }
}
