//! Batch norm, which normalizes channels over all examples and positions.

use highwater_kernels::Grid;

use super::columns::Columns;
use super::launch::{Launch, Queue, WIDE_BYTES};
use super::rows::{Rows, in_order};
use crate::backend::{Spread, View};
use crate::{DType, Result};

const FILE: &str = "batch_norm";
const OP: &str = "batch_norm";

/// Minimum size in bytes of lines that are read one by one.
const MIN_LINE_BYTES: u64 = 32;
/// Size of a piece in bytes. A piece should stay in the cache of a multiprocessor between the two passes over it.
const PIECE_BYTES: u64 = 32 << 10;
/// Minimum number of elements in a piece.
const PIECE_NUMBERS: u64 = 1024;

/// The sizes of `[batch, channels, …]`, with all later axes merged, `struct Size` in batch_norm.cu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    batch: u64,
    channels: u64,
    places: u64,
    bytes: u64,
}

impl Size {
    fn of(view: View<'_>) -> Self {
        let shape = view.layout.shape();
        let places: usize = shape[2..].iter().product();
        let bytes = view.dtype.size() as u64;
        Self { batch: shape[0] as u64, channels: shape[1] as u64, places: places as u64, bytes }
    }

    fn words(self) -> [u64; 3] {
        [self.batch, self.channels, self.places]
    }

    /// Returns the number of elements of a channel.
    fn numbers(self) -> u64 {
        self.batch * self.places
    }

    /// Returns the number of elements that a thread processes at a time, which is a pack if no pack extends beyond its
    /// line.
    fn pack(self, is_aligned: bool) -> u64 {
        let pack = WIDE_BYTES as u64 / self.bytes;
        if self.places.is_multiple_of(pack) && is_aligned { pack } else { 1 }
    }
}

/// The division of channels into pieces, and the kernels for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// Divides each channel's lines into `parts` parts. A single part is a whole channel.
    Lines { parts: u64, pack: u64 },
    /// Divides the rows of each channel's columns into parts.
    Columns(Columns),
}

impl Cut {
    fn new(queue: &Queue<'_>, dtype: DType, size: Size, is_aligned: bool) -> Self {
        // Each piece needs two values, and the final reduction two more for each channel.
        let room = queue.workspace().1 / (2 * dtype.statistics().size() as u64);
        let room = room.saturating_sub(size.channels);
        if size.places * size.bytes < MIN_LINE_BYTES && size.channels * size.places <= room {
            let columns = [size.batch, size.channels * size.places];
            return Self::Columns(Columns::new(queue, columns, dtype, is_aligned, room));
        }
        let parts = Self::parts_of_lines(queue.gpu().processors(), size, room);
        Self::Lines { parts, pack: size.pack(is_aligned) }
    }

    fn parts_of_lines(processors: u32, size: Size, room: u64) -> u64 {
        let near = (size.numbers() * size.bytes).div_ceil(PIECE_BYTES);
        let busy = (u64::from(processors) * 4).div_ceil(size.channels).min(size.numbers().div_ceil(PIECE_NUMBERS));
        near.max(busy).min(room / size.channels).clamp(1, 65535)
    }

    fn grid(&self, size: Size) -> Grid {
        match self {
            Self::Lines { parts, .. } => Grid { blocks: [size.channels as u32, *parts as u32, 1], ..Grid::row(1) },
            Self::Columns(columns) => columns.grid(),
        }
    }

    fn is_wide(&self) -> u32 {
        match self {
            Self::Lines { pack, .. } => u32::from(*pack > 1),
            Self::Columns(columns) => u32::from(columns.is_wide),
        }
    }

    /// Returns whether the first kernel processes whole channels, and needs no second kernel.
    fn is_whole(&self) -> bool {
        matches!(self, Self::Lines { parts: 1, .. })
    }

    /// Returns `struct Pieces` in batch_norm.cu.
    fn words(&self, size: Size) -> [u64; 4] {
        match self {
            Self::Lines { parts, pack } => [*parts, 1, size.numbers() / pack, *pack],
            Self::Columns(columns) => [columns.parts, size.places, size.batch, 1],
        }
    }

    /// Adds the pieces to a launch that combines the pieces of each channel, and sets its grid.
    fn end<'a>(&self, launch: Launch<'a>, size: Size) -> Launch<'a> {
        let words @ [parts, columns, ..] = self.words(size);
        let rows = Rows::new(&launch.queue, [size.channels, parts * columns], DType::F32);
        launch.words(&words).with(size.channels).with(rows.lanes()).grid(rows.grid())
    }

    /// Returns the bytes of one kind of sum for all pieces.
    fn bytes(&self, size: Size, dtype: DType) -> u64 {
        let [parts, columns, ..] = self.words(size);
        parts * columns * size.channels * dtype.statistics().size() as u64
    }
}

/// Means and spreads of channels, `struct Statistics` in batch_norm.cu.
#[derive(Clone, Copy)]
struct Statistics<'a> {
    views: [View<'a>; 2],
    spread: Spread,
    /// Number of channels of an example that share a statistic; 0 if all examples share one statistic per channel.
    shared: u64,
}

impl<'a> Statistics<'a> {
    fn new(views: [View<'a>; 2], spread: Spread, size: Size) -> Self {
        let of_groups = (size.batch * size.channels).checked_div(views[0].layout.elements() as u64).unwrap_or(1);
        Self { views, spread, shared: if views[0].layout.shape().rank() > 1 { of_groups } else { 0 } }
    }

    fn add(self, mut launch: Launch<'a>) -> Result<Launch<'a>> {
        let [mean, spread] = [launch.lend(self.views[0])?, launch.lend(self.views[1])?];
        let [is_variance, epsilon] = match self.spread {
            Spread::Rstd => [0, 0],
            Spread::Variance { epsilon } => [1, epsilon.to_bits()],
        };
        Ok(launch.words(&[mean, spread, is_variance, epsilon, self.shared]))
    }
}

/// The outputs of the measuring kernel, `struct Measured` in batch_norm.cu.
struct Measured<'a> {
    statistics: [View<'a>; 2],
    running: Option<[View<'a>; 2]>,
    numbers: [f64; 2],
}

impl<'a> Measured<'a> {
    fn add(&self, mut launch: Launch<'a>) -> Result<Launch<'a>> {
        let running = self.running.map_or([None; 2], |running| running.map(Some));
        let mut words = Vec::new();
        for view in self.statistics.map(Some).into_iter().chain(running) {
            words.push(view.map_or(Ok(0), |view| launch.lend_to_write(view))?);
        }
        words.extend(self.numbers.map(f64::to_bits));
        Ok(launch.words(&words))
    }
}

pub(crate) fn batch_norm_measure(
    mean: View<'_>,
    rstd: View<'_>,
    input: View<'_>,
    running: Option<[View<'_>; 2]>,
    momentum: f64,
    epsilon: f64,
) -> Result<()> {
    let size = Size::of(input);
    if size.channels == 0 {
        return Ok(());
    }
    let measured = Measured { statistics: [mean, rstd], running, numbers: [momentum, epsilon] };
    let mut launch = Launch::of_floats(OP, input)?;
    let (queue, from) = (launch.queue, launch.lend(input)?);
    let cut = Cut::new(&queue, input.dtype, size, from.is_multiple_of(WIDE_BYTES as u64));
    let first = queue.workspace().0;
    let second = first + cut.bytes(size, input.dtype);
    let (name, launch) = match cut {
        Cut::Lines { .. } => ("measure_of_lines", measured.add(launch)?),
        Cut::Columns(_) => ("measure_of_columns", launch),
    };
    let launch = launch.with(first).with(second).with(from).words(&size.words()).with(cut.is_wide());
    launch.grid(cut.grid(size)).run(FILE, name)?;
    if cut.is_whole() {
        return Ok(());
    }
    let launch = measured.add(Launch::new(OP, input)?)?.with(first).with(second);
    cut.end(launch, size).run(FILE, "end_measure")
}

pub(crate) fn batch_norm(
    out: View<'_>,
    input: View<'_>,
    statistics: [View<'_>; 2],
    spread: Spread,
    affine: [Option<View<'_>>; 2],
) -> Result<()> {
    let size = Size::of(input);
    let launch = Launch::of_floats(OP, input)?.write(out)?.read(input)?;
    let pack = size.pack(launch.is_aligned(WIDE_BYTES));
    let launch = Statistics::new(statistics, spread, size).add(launch)?.read_if(affine[0])?.read_if(affine[1])?;
    let launch = launch.words(&size.words()).with(u32::from(pack > 1));
    launch.over(input.layout.elements(), pack as usize).run(FILE, "batch_norm")
}

/// The gradients of a batch norm, which are summed by channel.
struct Slopes<'a> {
    /// The gradient, and the input if it is needed.
    read: [Option<View<'a>>; 2],
    known: Statistics<'a>,
    size: Size,
    cut: Cut,
}

impl<'a> Slopes<'a> {
    /// Sums the gradients of pieces. For whole channels, adds the sums to weight and bias; otherwise, `end` does so.
    fn sum(&self, launch: Launch<'a>, outs: [Option<View<'a>>; 2]) -> Result<()> {
        let (name, launch) = match self.cut {
            Cut::Lines { .. } => ("slopes_of_lines", launch.write_if(outs[0])?.write_if(outs[1])?),
            Cut::Columns(_) => ("slopes_of_columns", launch),
        };
        let room = launch.queue.workspace().0;
        let launch = self.read.iter().try_fold(launch.with(room), |launch, &view| launch.read_if(view))?;
        let launch = self.known.add(launch)?.words(&self.size.words()).with(self.cut.is_wide());
        launch.grid(self.cut.grid(self.size)).run(FILE, name)
    }

    /// Combines the sums of pieces, and adds them to weight and bias, or writes their means.
    fn end(&self, launch: Launch<'a>, outs: [Option<View<'a>>; 2], means: u64) -> Result<()> {
        let launch = launch.write_if(outs[0])?.write_if(outs[1])?.with(means);
        let room = launch.queue.workspace().0;
        self.cut.end(launch.with(room), self.size).run(FILE, "end_slopes")
    }
}

pub(crate) fn batch_norm_backward_affine(
    grad: View<'_>,
    input: Option<View<'_>>,
    statistics: [View<'_>; 2],
    spread: Spread,
    affine: [Option<View<'_>>; 2],
) -> Result<()> {
    if grad.layout.elements() == 0 {
        return Ok(());
    }
    let size = Size::of(grad);
    let launch = Launch::of_floats(OP, grad)?;
    let is_aligned = Launch::new(OP, grad)?.read(grad)?.read_if(input)?.is_aligned(WIDE_BYTES);
    let cut = Cut::new(&launch.queue, grad.dtype, size, is_aligned);
    let known = Statistics::new(statistics, spread, size);
    let slopes = Slopes { read: [Some(grad), input], known, size, cut };
    slopes.sum(launch, affine)?;
    if cut.is_whole() { Ok(()) } else { slopes.end(Launch::new(OP, grad)?, affine, 0) }
}

pub(crate) fn batch_norm_backward(
    out: View<'_>,
    grad: Option<View<'_>>,
    input: Option<View<'_>>,
    statistics: [View<'_>; 2],
    spread: Spread,
    weight: Option<View<'_>>,
) -> Result<()> {
    let size = Size::of(out);
    let known = Statistics::new(statistics, spread, size);
    if out.layout.elements() == 0 {
        return Ok(());
    }
    let grad = in_order(out, grad)?;
    let start = || Launch::of_floats(OP, out)?.write(out)?.read_or(grad, out)?.read_if(input);
    let launch = start()?;
    let (queue, is_aligned) = (launch.queue, launch.is_aligned(WIDE_BYTES));
    let (pack, cut) = (size.pack(is_aligned), Cut::new(&queue, out.dtype, size, is_aligned));
    if input.is_some() && cut.is_whole() {
        let launch = known.add(launch)?.read_if(weight)?.words(&size.words()).with(u32::from(pack > 1));
        let grid = Grid::row(size.channels.min(u64::from(queue.gpu().processors()) * 16) as u32);
        return launch.grid(grid).run(FILE, "batch_norm_backward_of_channels");
    }
    drop(launch);
    let mut means = 0;
    if input.is_some() {
        means = queue.workspace().0 + 2 * cut.bytes(size, out.dtype);
        let slopes = Slopes { read: [Some(grad.unwrap_or(out)), input], known, size, cut };
        slopes.sum(Launch::new(OP, out)?, [None; 2])?;
        slopes.end(Launch::new(OP, out)?, [None; 2], means)?;
    }
    let launch = known.add(start()?)?.read_if(weight)?.with(means).words(&size.words()).with(u32::from(pack > 1));
    launch.over(out.layout.elements(), pack as usize).run(FILE, "batch_norm_backward")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(batch: u64, channels: u64, places: u64, room: u64) -> u64 {
        Cut::parts_of_lines(132, Size { batch, channels, places, bytes: 4 }, room)
    }

    #[test]
    fn pieces_stay_near_a_processor_and_keep_all_of_them_busy() {
        assert_eq!(parts(32, 64, 112 * 112, 1 << 20), 49);
        assert_eq!(parts(32, 2048, 49, 1 << 20), 1);
        assert_eq!(parts(8, 16, 1024, 1 << 20), 8, "small channels are not cut further");
        assert_eq!(parts(1, 4, 10, 1 << 20), 1);
    }

    #[test]
    fn pieces_fit_in_the_workspace() {
        assert_eq!(parts(32, 64, 112 * 112, 0), 1);
        assert_eq!(parts(32, 64, 112 * 112, 64 * 10), 10);
    }
}
