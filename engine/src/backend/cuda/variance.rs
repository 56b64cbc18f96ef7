//! Sums of squared differences from a mean.

use highwater_kernels::Grid;
use highwater_kernels::gpu::launch::THREADS;

use super::launch::{Launch, Queue, nest_words};
use crate::backend::{Nest, View};
use crate::{Layout, Result};

const FILE: &str = "variance";
const OP: &str = "var";

/// Selects index 0 of the axes for which `leave` is true.
fn without(layout: &Layout, leave: impl Fn(usize) -> bool) -> Layout {
    (0..layout.shape().rank()).rev().filter(|&axis| leave(axis)).fold(*layout, |layout, axis| layout.select(axis, 0))
}

/// The axes along which elements of an input are reduced together, and the threads that reduce them, `struct Shape` in
/// variance.cu.
struct Together<const N: usize> {
    outer: Nest<N>,
    inner: Nest<1>,
    across: u32,
    is_across: bool,
    parts: u32,
    blocks: u32,
    parts_at: u64,
}

impl<const N: usize> Together<N> {
    /// Creates the description for the axes along which the first operand repeats. The second operand is the input.
    fn new(queue: &Queue<'_>, operands: [&Layout; N]) -> Self {
        let (shape, strides) = (operands[1].shape(), operands[0].strides());
        let is_summed = |axis: usize| strides[axis] == 0 || shape[axis] == 1;
        let outer = operands.map(|layout| without(layout, is_summed));
        let inner = without(operands[1], |axis| !is_summed(axis));
        let (outer, inner) = (Nest::new(outer.each_ref()), Nest::new([&inner]));
        let (address, bytes) = queue.workspace();
        let mut together = Self { outer, inner, across: 1, is_across: false, parts: 1, blocks: 0, parts_at: address };
        together.share(queue.gpu().processors(), bytes / 8);
        together
    }

    fn places(&self) -> u64 {
        self.outer.elements() as u64
    }

    fn elements(&self) -> u64 {
        self.inner.elements() as u64
    }

    /// Determines the division among threads, with space for `room` partial sums.
    fn share(&mut self, processors: u32, room: u64) {
        const WARP: u64 = 32;
        const ELEMENTS_PER_THREAD: u64 = 8;
        let (places, elements, threads) = (self.places(), self.elements(), u64::from(THREADS));
        if places == 0 || elements == 0 {
            return;
        }
        // Neighbouring threads process elements along the axis that is nearer in memory.
        self.is_across = places > 1 && self.outer.inner_strides()[1] < self.inner.inner_strides()[0];
        let most_sharing = elements.next_power_of_two().min(threads);
        let least_across = if self.is_across { places.next_power_of_two().min(WARP) } else { 1 };
        let across = (threads / most_sharing).max(least_across);
        let tiles = places.div_ceil(across);
        let busy = u64::from(processors) * 8;
        let worth = elements.div_ceil(threads / across * ELEMENTS_PER_THREAD);
        let wanted = busy.div_ceil(tiles).min(worth).min(room / places).min(65535);
        self.across = across as u32;
        self.parts = if tiles * 2 > busy { 1 } else { wanted.max(1) as u32 };
        self.blocks = tiles.min(u64::from(processors) * 16) as u32;
    }

    fn grid(&self) -> Grid {
        Grid { blocks: [self.blocks, self.parts, 1], ..Grid::row(1) }
    }

    fn shape_words(&self) -> [u64; 3] {
        [self.places(), self.elements(), u64::from(self.across) | u64::from(self.is_across) << 32]
    }

    /// Adds the description to a launch, and sets its grid.
    fn add<'a>(&self, launch: Launch<'a>) -> Launch<'a> {
        launch
            .words(&self.shape_words())
            .words(&nest_words(&self.outer))
            .words(&nest_words(&self.inner))
            .grid(self.grid())
    }

    /// Adds the parts to a launch that combines them. The lanes of a warp share an element.
    fn add_parts<'a>(&self, launch: Launch<'a>) -> Launch<'a> {
        let launch = launch.with(self.parts_at).with(self.parts).words(&self.shape_words());
        launch.words(&nest_words(&self.outer)).over(self.outer.elements() * 32, 1)
    }
}

pub(crate) fn exact_mean(out: View<'_>, input: View<'_>) -> Result<()> {
    let launch = Launch::of_floats(OP, input)?.write(out)?;
    let together = Together::new(&launch.queue, [out.layout, input.layout]);
    let launch = launch.with(together.parts_at).read(input)?;
    together.add(launch).run(FILE, "exact_mean")?;
    if together.parts == 1 {
        return Ok(());
    }
    together.add_parts(Launch::new(OP, input)?.write(out)?).run(FILE, "end_exact_mean")
}

pub(crate) fn variance(out: View<'_>, input: View<'_>, mean: View<'_>, scale: f64) -> Result<()> {
    let launch = Launch::of_floats(OP, out)?.write(out)?;
    let together = Together::new(&launch.queue, [out.layout, input.layout, mean.layout]);
    let launch = launch.with(together.parts_at).read(input)?.read(mean)?;
    together.add(launch).with(scale).run(FILE, "variance")?;
    if together.parts == 1 {
        return Ok(());
    }
    together.add_parts(Launch::new(OP, out)?.write(out)?).with(scale).run(FILE, "end_variance")
}

pub(crate) fn variance_backward(
    out: View<'_>,
    grad: View<'_>,
    input: Option<View<'_>>,
    mean: View<'_>,
    scale: f64,
) -> Result<()> {
    let launch = Launch::of_floats(OP, out)?.write(out)?.read(grad)?.read_or(input, out)?.read(mean)?;
    launch.with(scale).lines::<4>().run(FILE, "variance_backward")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::Shape;

    /// Whether neighbouring threads have neighbouring places, how many places a block has, blocks and parts.
    fn shared(shape: &[usize], summed: &[usize], room: u64) -> (bool, u32, u32, u32) {
        let input = Layout::contiguous(Shape::filled(shape));
        let kept = shape.iter().enumerate().map(|(axis, &length)| if summed.contains(&axis) { 1 } else { length });
        let kept: Vec<usize> = kept.collect();
        let out = Layout::contiguous(Shape::filled(&kept)).expand("test", input.shape()).expect("axes of length 1");
        let is_summed = |axis: usize| out.strides()[axis] == 0 || input.shape()[axis] == 1;
        let outer = [&out, &input].map(|layout| without(layout, is_summed));
        let inner = without(&input, |axis| !is_summed(axis));
        let (outer, inner) = (Nest::new(outer.each_ref()), Nest::new([&inner]));
        let mut together = Together { outer, inner, across: 1, is_across: false, parts: 1, blocks: 0, parts_at: 0 };
        together.share(132, room);
        (together.is_across, together.across, together.blocks, together.parts)
    }

    #[test]
    fn threads_stand_in_the_order_of_memory() {
        let room = 1 << 21;
        assert_eq!(shared(&[100_000, 8], &[1], room), (false, 32, 2112, 1), "short rows");
        assert_eq!(shared(&[10_000, 3000], &[1], room), (false, 1, 2112, 1), "long rows");
        assert_eq!(shared(&[4096, 768], &[0], room), (true, 32, 24, 44), "columns");
        assert_eq!(shared(&[2, 100_000], &[0], room), (true, 128, 782, 1), "many short columns");
    }

    #[test]
    fn what_few_blocks_would_sum_is_cut_into_parts_if_there_is_room() {
        assert_eq!(shared(&[1000, 1000], &[0, 1], 1 << 21), (false, 1, 1, 489));
        assert_eq!(shared(&[1000, 1000], &[0, 1], 0), (false, 1, 1, 1));
        assert_eq!(shared(&[5, 7], &[0, 1], 1 << 21), (false, 4, 1, 1));
        assert_eq!(shared(&[0, 7], &[0], 1 << 21).2, 0, "there is nothing to start");
    }
}
