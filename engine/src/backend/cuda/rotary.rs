//! Rotary embeddings, which rotate pairs of elements of a head by angles that grow with the position.

use super::launch::Launch;
use super::lines::{grid, most_blocks};
use crate::Result;
use crate::backend::{Rotation, View};

pub(crate) fn rotary(heads: View<'_>, rotation: Rotation) -> Result<()> {
    let launch = Launch::of_floats("rotary", heads)?.write(heads)?;
    if heads.layout.elements() == 0 {
        return Ok(());
    }
    let (lengths, strides) = (heads.layout.shape().lengths(), heads.layout.strides());
    assert!(strides[3] == 1 || lengths[3] == 1, "the elements of a head are not contiguous");
    let mut words: Vec<u64> = lengths.iter().chain(&strides[..3]).map(|&number| number as u64).collect();
    let direction = if rotation.back { -1.0_f64 } else { 1.0 };
    words.extend([rotation.first as u64, rotation.base.to_bits(), direction.to_bits()]);
    let grid = grid((lengths[3] / 2) as u64, (lengths[0] * lengths[1]) as u64, most_blocks(&launch.queue));
    launch.words(&words).grid(grid).run("rotary", "rotary")
}
