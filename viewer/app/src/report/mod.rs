//! Tables of an answer, each described once: the command line prints them as text, CSV and JSON, the app shows them.

mod column;
mod table;
mod value;

pub use column::{Column, Fit, Unit};
pub use table::Table;
pub use value::Value;
