//! The output of commands: pages, tables, exit status.

pub mod usage;
mod terminal;
pub(crate) mod message;
pub mod page;
pub mod caveats;
pub mod key_cells;
pub mod answer;
pub mod peaks;

pub(crate) use answer::{Failure, Report, Status, answer};
pub(crate) use caveats::{problem_texts, trust};
pub(crate) use key_cells::{block_columns, each_text, key_columns, named, none_note, sum_names};
pub(crate) use page::{JsonText, Page, SCHEMA_VERSION, versioned};
pub(crate) use peaks::{peaks_table, peaks_value};
pub(crate) use usage::usage_error;
