//! Replaces `record.rs` in a build without the engine.

use std::path::Path;

use highwater_app::example::Example;

use crate::args::RecordArguments;
use crate::output::outcome::{Failure, Status};
use crate::output::page::Page;

/// Nothing can be recorded in this build, so the first screen offers no example.
pub const EXAMPLES: &[Example] = &[];

/// Fails: this build has no engine.
pub fn example(_name: &str, _file: &Path) -> Result<(), String> {
    Err(NO_ENGINE.to_owned())
}

const NO_ENGINE: &str =
    "this build has no engine to run a scenario with: build highwater with its default feature 'engine'";

/// Fails: this build has no engine.
pub fn run(_arguments: &RecordArguments, _page: &mut Page<'_>) -> Result<Status, Failure> {
    Err(Failure::Record(NO_ENGINE.to_owned()))
}
