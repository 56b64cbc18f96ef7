//! Replaces `record.rs` in a build without the engine.

use std::path::{Path, PathBuf};

use clap::Args;
use highwater_app::example::Example;

use crate::args::Form;
use crate::output::{Failure, Page, Status};

/// Arguments of `highwater record`, which always fails in this build.
#[derive(Clone, Debug, Args)]
pub struct RecordArguments {
    /// Ignored: this build has no engine
    #[arg(value_name = "ARGUMENTS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub ignored: Vec<String>,
    /// Always the default.
    #[arg(skip)]
    pub form: Form,
}

impl RecordArguments {
    pub(crate) fn to_open(&self) -> Option<PathBuf> {
        None
    }
}

/// Empty, since a build without the engine has no scenarios.
#[derive(Clone, Debug, Default, Args)]
pub struct ScenarioArguments {}

/// Empty, since this build cannot record any training step.
pub const EXAMPLES: &[Example] = &[];

/// Returns an error, since this build has no engine.
pub fn example(_name: &str, _file: &Path) -> Result<(), String> {
    Err(NO_ENGINE.to_owned())
}

const NO_ENGINE: &str =
    "this build has no engine to run a scenario with: build highwater with its default feature 'engine'";

/// Returns an error, since this build has no engine.
pub fn run(_arguments: &RecordArguments, _page: &mut Page<'_>) -> Result<Status, Failure> {
    Err(Failure::Record(NO_ENGINE.to_owned()))
}
