//! Replaces `record.rs` in a build without the engine.

use std::path::PathBuf;

use clap::Args;

/// `highwater record`, which fails whatever its arguments are.
#[derive(Clone, Debug, Args)]
pub struct RecordArguments {
    /// Ignored: this build has no engine
    #[arg(value_name = "ARGUMENTS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub ignored: Vec<String>,
    /// Ignored.
    #[arg(skip)]
    pub json: bool,
}

impl RecordArguments {
    /// Nothing: nothing is recorded.
    pub fn to_open(&self) -> Option<PathBuf> {
        None
    }
}

/// Nothing: a build without the engine has no scenarios.
#[derive(Clone, Debug, Default, Args)]
pub struct ScenarioArguments {}
