//! Cross-entropy from logits, and its gradient, without a buffer for the softmax.

use highwater_kernels::gpu::launch::THREADS;

use super::launch::{Launch, WIDE_BYTES};
use super::parts::Parts;
use super::rows::{Rows, in_order};
use crate::Result;
use crate::backend::View;

const FILE: &str = "loss";
const OP: &str = "cross_entropy";

/// The sizes of logits `[examples, classes, …]`, with all positions of an example merged into one axis.
#[derive(Clone, Copy)]
struct Size {
    /// Number of targets of all examples.
    all_places: u64,
    classes: u64,
    /// Number of targets of one example.
    places: u64,
}

impl Size {
    fn of(logits: View<'_>, targets: View<'_>) -> Self {
        let shape = logits.layout.shape();
        let places: usize = shape[2..].iter().product();
        Self { all_places: targets.layout.elements() as u64, classes: shape[1] as u64, places: places as u64 }
    }

    /// Returns the number of threads that share a position whose classes are not contiguous. It is a power of two, and
    /// larger if there are few positions.
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
    let size = Size::of(logits, targets);
    let launch = Launch::of_floats(OP, logits)?.write(statistics)?.read(logits)?;
    if size.places == 1 {
        let rows = Rows::new(&launch.queue, [size.all_places, size.classes], logits.dtype);
        launch.rows(rows).run(FILE, "log_sums_of_rows")?;
    } else {
        let slices = size.slices(launch.queue.gpu().processors());
        let launch = launch.with(size.all_places).with(size.classes).with(size.places).with(slices);
        launch.over((size.all_places * u64::from(slices)) as usize, 1).run(FILE, "log_sums_of_places")?;
    }

    let launch = Launch::new(OP, logits)?.write(loss)?.write(count)?;
    let (queue, fault) = (launch.queue, launch.queue.gpu().fault_address());
    // At least eight positions per thread, because threads mostly wait for memory.
    let parts = Parts::new(&queue, queue.over(size.all_places as usize, 8), 2);
    let launch = launch.with(parts.address()).read(logits)?.read(statistics)?.read(targets)?;
    let launch = launch.with(size.all_places).with(size.classes).with(size.places).with(ignored).with(fault);
    launch.grid(parts.grid()).run(FILE, "cross_entropy")?;
    if parts.are_several() {
        Launch::new(OP, logits)?.write(loss)?.write(count)?.parts(parts).run(FILE, "end_cross_entropy")?;
    }
    Ok(())
}

pub(crate) fn cross_entropy_backward(
    out: View<'_>,
    logits: Option<View<'_>>,
    known: [View<'_>; 3],
    targets: View<'_>,
    ignored: i64,
) -> Result<()> {
    let size = Size::of(out, targets);
    let logits = in_order(out, logits)?;
    let launch = Launch::of_floats(OP, out)?.write(out)?.read_or(logits, out)?;
    let is_aligned = launch.is_aligned(WIDE_BYTES);
    let launch = known.iter().try_fold(launch, |launch, &view| launch.read(view))?.read(targets)?.with(ignored);
    if size.places == 1 {
        let rows = Rows::new(&launch.queue, [size.all_places, size.classes], out.dtype);
        return launch.rows(rows).run(FILE, "cross_entropy_backward_of_rows");
    }
    let pack = WIDE_BYTES / out.dtype.size();
    let is_wide = is_aligned && size.places.is_multiple_of(pack as u64);
    let elements = out.layout.elements();
    let launch = launch.with(elements as u64).with(size.classes).with(size.places).with(u32::from(is_wide));
    launch.over(elements, if is_wide { pack } else { 1 }).run(FILE, "cross_entropy_backward_of_places")
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
