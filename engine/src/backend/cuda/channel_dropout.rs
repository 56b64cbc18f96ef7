//! Channel dropout.

use super::launch::Launch;
use super::random::bound;
use super::rows::in_order;
use crate::Result;
use crate::backend::View;
use crate::rng::Draw;

pub(crate) fn dropout_channels(out: View<'_>, input: Option<View<'_>>, share: f64, draw: Draw) -> Result<()> {
    let (outer, inner) = out.layout.shape().split_at(2);
    let (channels, places): (usize, usize) = (outer.iter().product(), inner.iter().product());
    let input = in_order(out, input)?;
    let mut launch = Launch::of_floats("dropout2d", out)?.write(out)?.read_or(input, out)?;
    let is_packed = launch.lines_in_order([places, channels]);
    let launch = launch.with(channels as u64).with(places as u64).with(is_packed).words(&draw.seed_and_counter());
    launch.with(bound(share)).with(1.0 / (1.0 - share)).run("channel_dropout", "dropout_channels")
}
