//! The report of a command: named facts and tables of typed columns. A report is built once, and printed as text,
//! Markdown, CSV or JSON. The app shows its tables.

mod value;
mod column;
mod table;
mod facts;
mod wrap;
mod text;
mod markdown;

pub use column::{Column, Fit, Unit, column_of, compared, with_decimals};
pub use facts::{Content, Fact, Facts};
pub use markdown::code;
pub use table::{Rows, Table};
pub use text::{bar, cut, percent};
pub use value::{Field, IntoValue, Value};
pub use wrap::wrapped;
