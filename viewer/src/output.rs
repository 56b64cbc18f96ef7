//! The output of commands: pages, tables, and exit status.

pub(crate) mod usage;
mod terminal;
pub(crate) mod message;
pub(crate) mod page;
pub(crate) mod caveats;
pub(crate) mod key_cells;
pub(crate) mod answer;
pub(crate) mod peaks;

pub(crate) use answer::{Failure, Report, Status, about, answer, unreadable};
pub(crate) use caveats::{problem_texts, trust};
pub(crate) use key_cells::{block_columns, each_text, key_columns, named, none_note, sum_names};
pub(crate) use page::{JsonText, Page, SCHEMA_VERSION, versioned};
pub(crate) use peaks::{peaks_table, peaks_value};
pub(crate) use usage::usage_error;
