//! The output of commands: pages, tables, exit status.

pub mod outcome;
pub mod usage;
mod terminal;
pub(crate) mod message;
pub mod page;
pub mod caveats;
pub mod key_cells;
pub mod block_columns;
pub mod answer;
pub mod peaks;
