//! Rotary embeddings: rotates pairs of elements of a head by angles that grow with the position.

use highwater_kernels::{Arguments, Kernel};

use super::launch::{Queue, check_float, types, writing};
use super::lines::{grid, most_blocks};
use crate::backend::{Rotation, View};
use crate::error::Result;

pub(crate) fn rotary(heads: View<'_>, rotation: Rotation) -> Result<()> {
    let op = "rotary";
    check_float(op, heads.dtype)?;
    if heads.layout.elements() == 0 {
        return Ok(());
    }
    let queue = Queue::of(heads.storage.device(), op)?;
    let (lengths, strides) = (heads.layout.shape().lengths(), heads.layout.strides());
    assert!(strides[3] == 1 || lengths[3] == 1, "a head's numbers lie one after another");
    let memory = writing(heads, op)?;
    let mut words: Vec<u64> = lengths.iter().chain(&strides[..3]).map(|&number| number as u64).collect();
    let direction = if rotation.back { -1.0_f64 } else { 1.0 };
    words.extend([rotation.first as u64, rotation.base.to_bits(), direction.to_bits()]);
    let arguments = Arguments::new().with(memory.address()).with_words(&words);
    let grid = grid((lengths[3] / 2) as u64, (lengths[0] * lengths[1]) as u64, most_blocks(&queue));
    queue.launch(Kernel::new("rotary", "rotary", types(heads.dtype)), grid, &arguments)
}
