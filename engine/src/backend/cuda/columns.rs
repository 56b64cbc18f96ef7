//! Sums over the rows of a matrix, with enough thread blocks to occupy the device.

use bytemuck::{Pod, Zeroable};
use highwater_kernels::Grid;

use super::launch::{Launch, Queue, WIDE_BYTES};
use crate::backend::View;
use crate::{DType, Result};

/// Number of columns, or packs of columns, per block, equal to the number of lanes in a warp.
const LANES: u64 = 32;
/// Minimum number of rows in a part.
const ROWS_PER_PART: u64 = 16;
/// Number of blocks for each multiprocessor of a device, if there are enough rows.
const BLOCKS_PER_PROCESSOR: u64 = 8;
/// Maximum number of blocks along a grid's second axis.
const MAX_PARTS: u64 = 65535;

/// The division of a matrix's columns among blocks, as in kernels that include columns.cuh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    /// Number of rows and columns.
    pub(super) size: [u64; 2],
    /// Whether each thread processes 16 bytes at a time.
    pub(super) is_wide: bool,
    /// Number of parts into which the rows are divided. A second kernel combines the sums of the parts.
    pub(super) parts: u64,
    tiles: u64,
}

impl Columns {
    /// Divides a matrix of size `[rows, columns]` among thread blocks: the columns into tiles, and the rows into as many
    /// parts as are useful and as fit into space for `sums` partial sums of each kind. `is_aligned` states whether rows
    /// begin at multiples of 16 bytes.
    pub(super) fn new(queue: &Queue<'_>, size: [u64; 2], dtype: DType, is_aligned: bool, sums: u64) -> Self {
        let pack = (WIDE_BYTES / dtype.size()) as u64;
        let is_wide = size[1].is_multiple_of(pack) && is_aligned;
        Self::cut(queue.gpu().processors(), size, if is_wide { pack } else { 1 }, sums)
    }

    fn cut(processors: u32, size: [u64; 2], pack: u64, sums: u64) -> Self {
        let [rows, columns] = size;
        let tiles = columns.div_ceil(LANES * pack);
        let wanted = (u64::from(processors) * BLOCKS_PER_PROCESSOR).div_ceil(tiles.max(1));
        let most = rows.div_ceil(ROWS_PER_PART).min(sums / columns.max(1)).min(MAX_PARTS);
        Self { size, is_wide: pack > 1, parts: wanted.min(most).max(1), tiles }
    }

    pub(super) fn grid(&self) -> Grid {
        Grid { blocks: [self.tiles as u32, self.parts as u32, 1], ..Grid::row(1) }
    }
}

/// The destination of the sums of columns, `struct Sums` in columns.cuh.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Sums {
    address: u64,
    keep: f64,
}

/// The kernels of a file that compute and combine partial sums.
#[derive(Clone, Copy)]
pub(super) struct ColumnKernels {
    pub(super) op: &'static str,
    pub(super) file: &'static str,
    /// Name of the kernel that sums each part of the rows.
    pub(super) sum: &'static str,
    /// Name of the kernel that combines the sums of the parts.
    pub(super) add: &'static str,
}

impl ColumnKernels {
    /// Sums over the rows of `matrix`. Each kind of sum is added to its destination, if there is one, after the
    /// destination's elements are multiplied by a factor. `read` is the first kernel's input.
    pub(super) fn launch<'a>(
        self,
        matrix: View<'a>,
        outs: &[(Option<View<'a>>, f64)],
        read: &[Option<View<'a>>],
    ) -> Result<()> {
        let width = matrix.layout.shape().last().copied().unwrap_or(1);
        let size = [matrix.layout.elements().checked_div(width).unwrap_or(0) as u64, width as u64];
        let launch = with_sums(Launch::of_floats(self.op, matrix)?, outs)?;
        let (room, bytes) = launch.queue.workspace();
        let launch = read.iter().try_fold(launch.with(room), |launch, &view| launch.read_if(view))?;
        let sums = bytes / (outs.len() * matrix.dtype.statistics().size()) as u64;
        let columns = Columns::new(&launch.queue, size, matrix.dtype, launch.is_aligned(WIDE_BYTES), sums);
        let launch = launch.with(size[0]).with(size[1]).with(u32::from(columns.is_wide));
        launch.grid(columns.grid()).run(self.file, self.sum)?;
        if columns.parts == 1 {
            return Ok(());
        }
        let both = [0, 1].map(|kind| outs.get(kind).copied().unwrap_or((None, 0.0)));
        let launch = with_sums(Launch::new(self.op, matrix)?, &both)?.with(room);
        let blocks = [size[1].div_ceil(LANES) as u32, outs.len() as u32, 1];
        let launch = launch.with(columns.parts as u32).with(size[1]).grid(Grid { blocks, ..Grid::row(1) });
        launch.run(self.file, self.add)
    }
}

fn with_sums<'a>(mut launch: Launch<'a>, outs: &[(Option<View<'a>>, f64)]) -> Result<Launch<'a>> {
    for &(out, keep) in outs {
        let address = out.map_or(Ok(0), |out| launch.lend_to_write(out))?;
        launch = launch.with(Sums { address, keep });
    }
    Ok(launch)
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
