//! Cross-entropy of some rows of logits, which overwrites the logits with their gradients.

use super::launch::Launch;
use super::parts::Parts;
use super::rows::Rows;
use crate::Result;
use crate::backend::View;

const FILE: &str = "chunked_loss";

pub(crate) fn count_targets(count: View<'_>, targets: View<'_>, ignored: i64) -> Result<()> {
    let launch = Launch::of_floats("count_targets", count)?.write(count)?.read(targets)?;
    launch.with(targets.layout.elements() as u64).with(ignored).run(FILE, "count_targets")
}

pub(crate) fn cross_entropy_in_place(
    logits: View<'_>,
    loss: View<'_>,
    known: [View<'_>; 2],
    ignored: i64,
) -> Result<()> {
    let op = "linear_cross_entropy";
    let [count, labels] = known;
    let launch = Launch::of_floats(op, logits)?.write(logits)?.write(loss)?;
    let rows = Rows::of(&launch.queue, logits);
    let parts = Parts::of_rows(&launch.queue, &rows);
    let fault = launch.queue.gpu().fault_address();
    let launch = launch.with(parts.address()).read(count)?.read(labels)?.with(ignored).with(fault);
    launch.rows(rows).grid(parts.grid()).run(FILE, "cross_entropy_in_place")?;
    if parts.are_several() {
        let end = Launch::new(op, logits)?.write(loss)?.parts(parts).read(count)?;
        end.run(FILE, "end_cross_entropy_in_place")?;
    }
    Ok(())
}
