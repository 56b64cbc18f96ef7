//! Batch norm: normalizes channels over all examples and positions.

use highwater_kernels::{Arguments, Grid, Kernel};

use super::columns::Columns;
use super::launch::{Place, Queue, address_of, check_float, reading, types, writing};
use super::rows::{Rows, in_order};
use crate::backend::{Spread, View};
use crate::dtype::DType;
use crate::error::Result;

const FILE: &str = "batch_norm";
const OP: &str = "batch_norm";

/// Below so many bytes, lines of places are too short to be read one by one.
const MIN_LINE_BYTES: u64 = 32;
/// What the two passes over a piece should keep near a processor.
const PIECE_BYTES: u64 = 32 << 10;
/// Fewer numbers than this are not worth a piece of their own.
const PIECE_NUMBERS: u64 = 1024;

/// The sizes of `[batch, channels, …]`, all that follows in one: `struct Size` of batch_norm.cu.
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

    /// Numbers of a channel.
    fn numbers(self) -> u64 {
        self.batch * self.places
    }

    /// Elements that a thread takes at a time: a pack, if none goes beyond its line.
    fn pack(self, places: &[&Place<'_>]) -> u64 {
        let pack = 16 / self.bytes;
        if self.places.is_multiple_of(pack) && places.iter().all(|place| place.is_wide()) { pack } else { 1 }
    }
}

/// How channels are cut into pieces, and by which kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// Parts of each channel's lines, of so many packs in all. One part is a whole channel.
    Lines { parts: u64, pack: u64 },
    /// Parts of the rows of each channel's columns.
    Columns(Columns),
}

impl Cut {
    fn new(queue: &Queue<'_>, dtype: DType, size: Size, places: &[&Place<'_>]) -> Self {
        // Pieces keep two numbers each, and what follows them two more for each channel.
        let room = queue.workspace().1 / (2 * dtype.statistics().size() as u64);
        let room = room.saturating_sub(size.channels);
        if size.places * size.bytes < MIN_LINE_BYTES && size.channels * size.places <= room {
            let columns = [size.batch, size.channels * size.places];
            return Self::Columns(Columns::with_room(queue, columns, dtype, places, room));
        }
        let parts = Self::parts_of_lines(queue.gpu().processors(), size, room);
        Self::Lines { parts, pack: size.pack(places) }
    }

    /// Into how many parts the lines of a channel are cut.
    fn parts_of_lines(processors: u32, size: Size, room: u64) -> u64 {
        let near = (size.numbers() * size.bytes).div_ceil(PIECE_BYTES);
        let busy = (u64::from(processors) * 4).div_ceil(size.channels).min(size.numbers().div_ceil(PIECE_NUMBERS));
        near.max(busy).min(room / size.channels).clamp(1, 65535)
    }

    /// The blocks that sum pieces.
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

    /// Whether the first kernel has whole channels, and ends them itself.
    fn is_whole(&self) -> bool {
        matches!(self, Self::Lines { parts: 1, .. })
    }

    /// `struct Pieces` of batch_norm.cu.
    fn words(&self, size: Size) -> [u64; 4] {
        match self {
            Self::Lines { parts, pack } => [*parts, 1, size.numbers() / pack, *pack],
            Self::Columns(columns) => [columns.parts, size.places, size.batch, 1],
        }
    }

    /// Who puts the pieces of channels together.
    fn rows(&self, queue: &Queue<'_>, size: Size) -> Rows {
        let [parts, columns, ..] = self.words(size);
        Rows::new(queue, [size.channels, parts * columns], DType::F32)
    }

    /// Bytes of one kind of sum of all pieces.
    fn bytes(&self, size: Size, dtype: DType) -> u64 {
        let [parts, columns, ..] = self.words(size);
        parts * columns * size.channels * dtype.statistics().size() as u64
    }
}

/// Means and deviations of channels, as kernels take them: `struct Statistics` of batch_norm.cu.
struct Statistics<'a> {
    places: [Place<'a>; 2],
    spread: Spread,
    /// Channels of an example that share a statistic; 0 where all examples share those of a channel.
    shared: u64,
}

impl<'a> Statistics<'a> {
    fn new([mean, spread]: [View<'a>; 2], kind: Spread) -> Result<Self> {
        Ok(Self { places: [reading(mean, OP)?, reading(spread, OP)?], spread: kind, shared: 0 })
    }

    /// Means and 1 / deviations of groups of channels of each example.
    fn of_groups(statistics: [View<'a>; 2], size: Size) -> Result<Self> {
        let groups = statistics[0].layout.elements() as u64;
        let shared = (size.batch * size.channels).checked_div(groups).unwrap_or(1);
        Ok(Self { shared, ..Self::new(statistics, Spread::Rstd)? })
    }

    fn words(&self) -> [u64; 5] {
        let [mean, spread] = self.places.each_ref().map(Place::address);
        let [is_variance, epsilon] = match self.spread {
            Spread::Rstd => [0, 0],
            Spread::Variance { epsilon } => [1, epsilon.to_bits()],
        };
        [mean, spread, is_variance, epsilon, self.shared]
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
    check_float(OP, input.dtype)?;
    let queue = Queue::of(mean.storage.device(), OP)?;
    let kernel = |name| Kernel::new(FILE, name, types(input.dtype));
    let size = Size::of(input);
    if size.channels == 0 {
        return Ok(());
    }
    let from = reading(input, OP)?;
    let (means, rstds) = (writing(mean, OP)?, writing(rstd, OP)?);
    let [running_mean, running_variance] = match running {
        Some([mean, variance]) => [Some(writing(mean, OP)?), Some(writing(variance, OP)?)],
        None => [None, None],
    };
    let to = [
        means.address(),
        rstds.address(),
        address_of(&running_mean),
        address_of(&running_variance),
        momentum.to_bits(),
        epsilon.to_bits(),
    ];
    let cut = Cut::new(&queue, input.dtype, size, &[&from]);
    let (first, _) = queue.workspace();
    let second = first + cut.bytes(size, input.dtype);
    let arguments = match cut {
        Cut::Lines { .. } => Arguments::new().with_words(&to),
        Cut::Columns(_) => Arguments::new(),
    };
    let arguments =
        arguments.with(first).with(second).with(from.address()).with_words(&size.words()).with(cut.is_wide());
    let name = if matches!(cut, Cut::Lines { .. }) { "measure_of_lines" } else { "measure_of_columns" };
    queue.launch(kernel(name), cut.grid(size), &arguments)?;
    if cut.is_whole() {
        return Ok(());
    }
    let rows = cut.rows(&queue, size);
    let arguments = Arguments::new().with_words(&to).with(first).with(second).with_words(&cut.words(size));
    queue.launch(kernel("end_measure"), rows.grid(), &arguments.with(size.channels).with(rows.lanes()))
}

pub(crate) fn batch_norm(
    out: View<'_>,
    input: View<'_>,
    statistics: [View<'_>; 2],
    spread: Spread,
    affine: [Option<View<'_>>; 2],
) -> Result<()> {
    normalise(out, input, &Statistics::new(statistics, spread)?, affine)
}

pub(crate) fn group_norm(
    out: View<'_>,
    input: View<'_>,
    statistics: [View<'_>; 2],
    affine: [Option<View<'_>>; 2],
) -> Result<()> {
    normalise(out, input, &Statistics::of_groups(statistics, Size::of(input))?, affine)
}

fn normalise(out: View<'_>, input: View<'_>, known: &Statistics<'_>, affine: [Option<View<'_>>; 2]) -> Result<()> {
    check_float(OP, input.dtype)?;
    let queue = Queue::of(out.storage.device(), OP)?;
    let from = reading(input, OP)?;
    let [weight, bias] = affine.map(|view| view.map(|view| reading(view, OP)).transpose());
    let (weight, bias, to) = (weight?, bias?, writing(out, OP)?);
    let size = Size::of(input);
    let pack = size.pack(&[&from, &to]);
    let arguments = Arguments::new()
        .with(to.address())
        .with(from.address())
        .with_words(&known.words())
        .with(address_of(&weight))
        .with(address_of(&bias))
        .with_words(&size.words())
        .with(u32::from(pack > 1));
    let grid = queue.over(input.layout.elements(), pack);
    queue.launch(Kernel::new(FILE, "batch_norm", types(input.dtype)), grid, &arguments)
}

/// Sums the gradients of pieces, for `end_slopes`, or adds those of whole channels to weight and bias.
fn launch_slopes(
    queue: &Queue<'_>,
    cut: Cut,
    size: Size,
    dtype: DType,
    outs: [u64; 2],
    rest: impl FnOnce(Arguments) -> Arguments,
) -> Result<()> {
    let (room, _) = queue.workspace();
    let (name, first) = match cut {
        Cut::Lines { .. } => ("slopes_of_lines", Arguments::new().with(outs[0]).with(outs[1])),
        Cut::Columns(_) => ("slopes_of_columns", Arguments::new()),
    };
    let arguments = rest(first.with(room)).with_words(&size.words()).with(cut.is_wide());
    queue.launch(Kernel::new(FILE, name, types(dtype)), cut.grid(size), &arguments)
}

/// Puts the sums of pieces together: adds them to weight and bias, or writes means.
fn end_slopes(queue: &Queue<'_>, cut: Cut, size: Size, dtype: DType, outs: [u64; 3]) -> Result<()> {
    let (room, _) = queue.workspace();
    let rows = cut.rows(queue, size);
    let arguments = outs
        .into_iter()
        .fold(Arguments::new(), Arguments::with)
        .with(room)
        .with_words(&cut.words(size))
        .with(size.channels)
        .with(rows.lanes());
    queue.launch(Kernel::new(FILE, "end_slopes", types(dtype)), rows.grid(), &arguments)
}

pub(crate) fn batch_norm_backward_affine(
    grad: View<'_>,
    input: Option<View<'_>>,
    statistics: [View<'_>; 2],
    spread: Spread,
    affine: [Option<View<'_>>; 2],
) -> Result<()> {
    add_slopes(grad, input, &Statistics::new(statistics, spread)?, affine)
}

pub(crate) fn group_norm_backward_affine(
    grad: View<'_>,
    input: View<'_>,
    statistics: [View<'_>; 2],
    affine: [Option<View<'_>>; 2],
) -> Result<()> {
    add_slopes(grad, Some(input), &Statistics::of_groups(statistics, Size::of(grad))?, affine)
}

fn add_slopes(
    grad: View<'_>,
    input: Option<View<'_>>,
    known: &Statistics<'_>,
    affine: [Option<View<'_>>; 2],
) -> Result<()> {
    check_float(OP, grad.dtype)?;
    let queue = Queue::of(grad.storage.device(), OP)?;
    let size = Size::of(grad);
    if grad.layout.elements() == 0 {
        return Ok(());
    }
    let grads = reading(grad, OP)?;
    let from = input.map(|input| reading(input, OP)).transpose()?;
    let [weight, bias] = affine.map(|view| view.map(|view| writing(view, OP)).transpose());
    let (weight, bias) = (weight?, bias?);
    let outs = [address_of(&weight), address_of(&bias)];
    let cut = Cut::new(&queue, grad.dtype, size, &[&grads, from.as_ref().unwrap_or(&grads)]);
    launch_slopes(&queue, cut, size, grad.dtype, outs, |arguments| {
        arguments.with(grads.address()).with(address_of(&from)).with_words(&known.words())
    })?;
    if cut.is_whole() {
        return Ok(());
    }
    end_slopes(&queue, cut, size, grad.dtype, [outs[0], outs[1], 0])
}

pub(crate) fn batch_norm_backward(
    out: View<'_>,
    grad: Option<View<'_>>,
    input: Option<View<'_>>,
    statistics: [View<'_>; 2],
    spread: Spread,
    weight: Option<View<'_>>,
) -> Result<()> {
    check_float(OP, out.dtype)?;
    let queue = Queue::of(out.storage.device(), OP)?;
    let (size, dtype) = (Size::of(out), out.dtype);
    if out.layout.elements() == 0 {
        return Ok(());
    }
    let grads = in_order(out, grad)?.map(|grad| reading(grad, OP)).transpose()?;
    let from = input.map(|input| reading(input, OP)).transpose()?;
    let weight = weight.map(|weight| reading(weight, OP)).transpose()?;
    let (known, to) = (Statistics::new(statistics, spread)?, writing(out, OP)?);
    let grads = grads.as_ref().unwrap_or(&to);
    let places = [&to, grads, from.as_ref().unwrap_or(&to)];
    let pack = size.pack(&places);
    let start = || Arguments::new().with(to.address()).with(grads.address()).with(address_of(&from));
    let cut = Cut::new(&queue, dtype, size, &places);
    if from.is_some() && cut.is_whole() {
        let arguments = start().with_words(&known.words()).with(address_of(&weight));
        let arguments = arguments.with_words(&size.words()).with(u32::from(pack > 1));
        let grid = Grid::row(size.channels.min(u64::from(queue.gpu().processors()) * 16) as u32);
        return queue.launch(Kernel::new(FILE, "batch_norm_backward_of_channels", types(dtype)), grid, &arguments);
    }
    let mut means = 0;
    if from.is_some() {
        means = queue.workspace().0 + 2 * cut.bytes(size, dtype);
        launch_slopes(&queue, cut, size, dtype, [0, 0], |arguments| {
            arguments.with(grads.address()).with(address_of(&from)).with_words(&known.words())
        })?;
        end_slopes(&queue, cut, size, dtype, [0, 0, means])?;
    }
    let arguments = start().with_words(&known.words()).with(address_of(&weight)).with(means);
    let arguments = arguments.with_words(&size.words()).with(u32::from(pack > 1));
    let grid = queue.over(out.layout.elements(), pack);
    queue.launch(Kernel::new(FILE, "batch_norm_backward", types(dtype)), grid, &arguments)
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
