//! The output of commands: pages, tables, suggested commands, exit status.

pub mod outcome;
pub(crate) mod terminal;
pub mod page;
pub mod shell;
pub mod rerun;
pub mod caveats;
pub mod key_cells;
pub mod answer;
pub mod markdown;
