//! Reductions over all elements in several thread blocks: their number, and the workspace for partial results.

use highwater_kernels::{Arguments, Grid, Kernel};

use super::launch::Queue;
use super::rows::Rows;
use crate::error::Result;

/// Up to so many blocks' work takes one block less time than a second kernel.
const NOT_WORTH_A_KERNEL: u32 = 8;

/// The blocks of a fold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    blocks: u32,
    address: u64,
}

impl Parts {
    /// For what `wanted` blocks would do, each of which leaves `numbers` doubles.
    pub(super) fn new(queue: &Queue<'_>, wanted: Grid, numbers: u64) -> Self {
        let (address, bytes) = queue.workspace();
        let most = (bytes / (8 * numbers)).min(u64::from(u32::MAX)) as u32;
        let wanted = wanted.blocks[0];
        let blocks = if wanted <= NOT_WORTH_A_KERNEL { 1 } else { wanted.min(most).max(1) };
        Self { blocks, address }
    }

    /// For what is folded of rows, while they are gone over: by as many blocks as go over them, if there is room.
    pub(super) fn of_rows(queue: &Queue<'_>, rows: &Rows) -> Self {
        let (address, bytes) = queue.workspace();
        let most = (bytes / 8).min(u64::from(u32::MAX)) as u32;
        Self { blocks: rows.grid().blocks[0].min(most).max(1), address }
    }

    /// The blocks that fold: at least one, as there is a result of nothing too.
    pub(super) fn grid(&self) -> Grid {
        Grid::row(self.blocks)
    }

    /// A kernel's arguments, with where each block leaves what it has.
    pub(super) fn with(&self, arguments: Arguments) -> Arguments {
        arguments.with(self.address)
    }

    /// Puts together what blocks left, if there are several. `first` are the kernel's arguments before where that lies
    /// and how many blocks there were, and `rest` those after.
    pub(super) fn end(
        &self,
        queue: &Queue<'_>,
        kernel: Kernel,
        first: Arguments,
        rest: impl FnOnce(Arguments) -> Arguments,
    ) -> Result<()> {
        if self.blocks == 1 {
            return Ok(());
        }
        queue.launch(kernel, Grid::row(1), &rest(first.with(self.address).with(self.blocks)))
    }
}
