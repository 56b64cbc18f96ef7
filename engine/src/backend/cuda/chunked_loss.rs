//! Cross-entropy of some rows of logits, whose buffer receives their gradient.

use highwater_kernels::{Arguments, Grid, Kernel};

use super::launch::{Queue, check_float, reading, types, writing};
use super::parts::Parts;
use super::rows::Rows;
use crate::backend::View;
use crate::error::Result;

const FILE: &str = "chunked_loss";

pub(crate) fn count_targets(count: View<'_>, targets: View<'_>, ignored: i64) -> Result<()> {
    let op = "count_targets";
    check_float(op, count.dtype)?;
    let queue = Queue::of(count.storage.device(), op)?;
    let (labels, counted) = (reading(targets, op)?, writing(count, op)?);
    let places = targets.layout.elements() as u64;
    let arguments = Arguments::new().with(counted.address()).with(labels.address()).with(places).with(ignored);
    queue.launch(Kernel::new(FILE, "count_targets", types(count.dtype)), Grid::row(1), &arguments)
}

pub(crate) fn cross_entropy_in_place(
    logits: View<'_>,
    loss: View<'_>,
    known: [View<'_>; 2],
    ignored: i64,
) -> Result<()> {
    let op = "linear_cross_entropy";
    check_float(op, logits.dtype)?;
    let queue = Queue::of(logits.storage.device(), op)?;
    let kernel = |name| Kernel::new(FILE, name, types(logits.dtype));
    let (count, labels) = (reading(known[0], op)?, reading(known[1], op)?);
    let (values, total) = (writing(logits, op)?, writing(loss, op)?);
    let rows = Rows::of(&queue, logits);
    let parts = Parts::of_rows(&queue, &rows);
    let arguments = parts
        .with(Arguments::new().with(values.address()).with(total.address()))
        .with(count.address())
        .with(labels.address())
        .with(ignored)
        .with(queue.gpu().fault_address());
    queue.launch(kernel("cross_entropy_in_place"), parts.grid(), &rows.with(arguments))?;
    let first = Arguments::new().with(total.address());
    parts.end(&queue, kernel("end_cross_entropy_in_place"), first, |arguments| arguments.with(count.address()))
}
