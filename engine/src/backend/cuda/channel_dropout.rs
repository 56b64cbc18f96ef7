//! Channel dropout.

use highwater_kernels::{Arguments, Kernel};

use super::launch::{Queue, check_float, reading, types, writing};
use super::lines::in_order;
use super::random::{bound, in_order_or_copied};
use crate::backend::View;
use crate::error::Result;
use crate::rng::Draw;

pub(crate) fn dropout_channels(out: View<'_>, input: Option<View<'_>>, share: f64, draw: Draw) -> Result<()> {
    let op = "dropout2d";
    check_float(op, out.dtype)?;
    let input = in_order_or_copied(out, input)?;
    let queue = Queue::of(out.storage.device(), op)?;
    let (outer, inner) = out.layout.shape().split_at(2);
    let (channels, places): (usize, usize) = (outer.iter().product(), inner.iter().product());
    let from = input.map(|input| reading(input, op)).transpose()?;
    let to = writing(out, op)?;
    let from = from.as_ref().unwrap_or(&to);
    let (is_packed, grid) = in_order(&queue, &[to.address(), from.address()], out.dtype.size(), [places, channels]);
    let arguments = Arguments::new()
        .with(to.address())
        .with(from.address())
        .with(channels as u64)
        .with(places as u64)
        .with(is_packed)
        .with_words(&draw.place())
        .with(bound(share))
        .with(1.0 / (1.0 - share));
    queue.launch(Kernel::new("channel_dropout", "dropout_channels", types(out.dtype)), grid, &arguments)
}
