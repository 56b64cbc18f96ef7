//! Sums over the rows of a matrix, with enough thread blocks to occupy the device.

use bytemuck::{Pod, Zeroable};
use highwater_kernels::{Arguments, Grid, Kernel};

use super::launch::{Place, Queue, types};
use crate::backend::View;
use crate::dtype::DType;
use crate::error::Result;

/// Columns that a block stands before, or packs of columns: the lanes of a warp.
const LANES: u64 = 32;
/// Fewer rows than this are not worth a part of their own.
const ROWS_A_PART: u64 = 16;
/// Blocks for each of a device's processors, if there are rows for them.
const BLOCKS_A_PROCESSOR: u64 = 8;
/// The most blocks along a grid's second axis.
const MAX_PARTS: u64 = 65535;

/// How the columns of a matrix are shared among blocks, as kernels that include columns.cuh do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    /// Rows and columns.
    pub(super) size: [u64; 2],
    /// Whether each thread takes 16 bytes at a time.
    pub(super) is_wide: bool,
    /// Into how many parts the rows are cut, whose sums are put together by a second kernel.
    pub(super) parts: u64,
    tiles: u64,
}

impl Columns {
    /// Of `[rows, columns]` elements of a type, read at these places, for `kinds` sums of each column.
    pub(super) fn new(queue: &Queue<'_>, size: [u64; 2], dtype: DType, places: &[&Place<'_>], kinds: u64) -> Self {
        let (_, room) = queue.workspace();
        Self::with_room(queue, size, dtype, places, room / (kinds * dtype.statistics().size() as u64))
    }

    /// The same, with room for so many sums of each kind.
    pub(super) fn with_room(queue: &Queue<'_>, size: [u64; 2], dtype: DType, places: &[&Place<'_>], sums: u64) -> Self {
        let pack = 16 / dtype.size() as u64;
        let is_wide = size[1].is_multiple_of(pack) && places.iter().all(|place| place.is_wide());
        Self::cut(queue.gpu().processors(), size, if is_wide { pack } else { 1 }, sums)
    }

    /// With `pack` columns a thread, and room for so many sums of each kind.
    fn cut(processors: u32, size: [u64; 2], pack: u64, sums: u64) -> Self {
        let [rows, columns] = size;
        let tiles = columns.div_ceil(LANES * pack);
        let wanted = (u64::from(processors) * BLOCKS_A_PROCESSOR).div_ceil(tiles.max(1));
        let most = rows.div_ceil(ROWS_A_PART).min(sums / columns.max(1)).min(MAX_PARTS);
        Self { size, is_wide: pack > 1, parts: wanted.min(most).max(1), tiles }
    }

    /// The blocks that make the sums of parts.
    pub(super) fn grid(&self) -> Grid {
        Grid { blocks: [self.tiles as u32, self.parts as u32, 1], ..Grid::row(1) }
    }

    /// A kernel's arguments, with the size of the matrix and how it is read.
    pub(super) fn with(&self, arguments: Arguments) -> Arguments {
        arguments.with(self.size[0]).with(self.size[1]).with(u32::from(self.is_wide))
    }
}

/// Where sums of columns go: `struct Sums` in columns.cuh.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Sums {
    address: u64,
    keep: f64,
}

impl Sums {
    const NOWHERE: Self = Self { address: 0, keep: 0.0 };

    /// To a place, if there is one, in which `keep` times what is there stays.
    pub(super) fn new(place: Option<&Place<'_>>, keep: f64) -> Self {
        place.map_or(Self::NOWHERE, |place| Self { address: place.address(), keep })
    }
}

/// Kernels of one file that make the sums of parts, and that add these up.
#[derive(Clone, Copy)]
pub(super) struct ColumnKernels {
    /// The file.
    pub(super) file: &'static str,
    /// Makes sums of parts.
    pub(super) sum: &'static str,
    /// Adds them up.
    pub(super) add: &'static str,
}

impl ColumnKernels {
    /// Puts sums over the rows of `grad` where they belong, one place after another for each kind of sum.
    /// `first` are the arguments up to where the sums of parts go, and `rest` those up to the size.
    pub(super) fn launch(
        self,
        queue: &Queue<'_>,
        columns: Columns,
        dtype: DType,
        outs: &[Sums],
        rest: impl FnOnce(Arguments) -> Arguments,
    ) -> Result<()> {
        let (room, _) = queue.workspace();
        let start = outs.iter().fold(Arguments::new(), |arguments, &out| arguments.with(out));
        let arguments = columns.with(rest(start.with(room)));
        queue.launch(Kernel::new(self.file, self.sum, types(dtype)), columns.grid(), &arguments)?;
        if columns.parts == 1 {
            return Ok(());
        }
        let [first, second] = [0, 1].map(|kind| outs.get(kind).copied().unwrap_or(Sums::NOWHERE));
        let arguments =
            Arguments::new().with(first).with(second).with(room).with(columns.parts as u32).with(columns.size[1]);
        let blocks = [columns.size[1].div_ceil(LANES) as u32, outs.len() as u32, 1];
        queue.launch(Kernel::new(self.file, self.add, types(dtype)), Grid { blocks, ..Grid::row(1) }, &arguments)
    }
}

/// Rows and columns of contiguous memory, rows along the last axis.
pub(super) fn rows_and_columns(view: View<'_>) -> [u64; 2] {
    let columns = view.layout.shape().last().copied().unwrap_or(1);
    [view.layout.elements().checked_div(columns).unwrap_or(0) as u64, columns as u64]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_matrices_are_cut_until_the_device_is_busy() {
        let columns = Columns::cut(132, [8192, 768], 4, 1 << 21);
        assert_eq!((columns.grid().blocks, columns.is_wide), ([6, 176, 1], true));
        assert_eq!(Columns::cut(132, [40, 768], 4, 1 << 21).grid().blocks, [6, 3, 1], "parts are worth their while");
        assert_eq!(Columns::cut(132, [3, 7], 1, 1 << 21).grid().blocks, [1, 1, 1]);
    }

    #[test]
    fn sums_of_parts_fit_in_the_workspace() {
        let columns = Columns::cut(132, [1 << 20, 1 << 14], 4, 1 << 15);
        assert_eq!(columns.parts, 2);
        let columns = Columns::cut(132, [1 << 20, 1 << 16], 4, 1 << 15);
        assert_eq!(columns.parts, 1, "or are added where they go, by few blocks");
    }
}
