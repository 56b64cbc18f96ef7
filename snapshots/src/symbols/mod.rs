//! Symbolizes addresses in a module's file: functions, files and lines, with inlined functions expanded.
//!
//! No running process is needed, because a module is identified by its path and build id, and its file is read on this
//! or another machine. A file with another build id is never used, because it was rebuilt and would give wrong lines.
//! Release builds of Rust contain the needed information with `[profile.release] debug = "line-tables-only"`.
//!
//! [`Symbolizer`] looks up addresses. [`look_up`] looks up the frames of a recording that have no source lines yet.

mod line;
mod debug_info;
mod finding;
mod object_file;
mod copies;
mod search;
mod symbolizer;
mod lookup;

pub use finding::{Cause, Found, Missing};
pub use line::{Binary, Line, Request, SymbolProblem};
pub use lookup::{Asked, LookUp, ModuleOutcome, look_up};
pub use search::SYSTEM_DEBUG_FOLDER;
pub use symbolizer::Symbolizer;
