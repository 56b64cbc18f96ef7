//! Record: the twin of `record.rs` in a build without the engine.

use crate::args::RecordArguments;
use crate::cli::outcome::{Failure, Status};
use crate::cli::page::Page;

/// Says that this build has no engine.
pub fn run(_arguments: &RecordArguments, _page: &mut Page<'_>) -> Result<Status, Failure> {
    let text = "this build has no engine to run a scenario with: build highwater with its default feature 'engine'";
    Err(Failure::Record(text.to_owned()))
}
