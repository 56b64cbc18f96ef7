//! The output of commands: pages, tables, exit status.

pub mod outcome;
pub(crate) mod terminal;
pub mod page;
pub mod caveats;
pub mod key_cells;
pub mod answer;
pub mod peaks;
