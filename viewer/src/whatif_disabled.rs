//! What-if: the twin of `whatif.rs` in a build without the engine.

use highwater_analysis::addresses::FailedRequest;
use highwater_analysis::holders::Holders;
use highwater_snapshots::{DeviceId, Trace};

use crate::args::WhatIfArguments;
use crate::cli::outcome::{Failure, Status};
use crate::cli::page::Page;
use crate::oom_analysis::Trials;
use crate::prediction::{Change, Prediction};

const NO_ENGINE: &str =
    "this build has no allocator to replay a recording with: build highwater with its default feature 'engine'";

/// Why recordings cannot be replayed, in a sentence.
pub const WHY_NOT: Option<&str> = Some(NO_ENGINE);

/// Says that this build has no engine.
pub fn check_settings(_trace: &Trace, _device: DeviceId, _settings: &str) -> Result<(), String> {
    Err(NO_ENGINE.to_owned())
}

/// Says that this build has no engine.
pub fn predict(_trace: &Trace, _change: &Change) -> Result<Prediction, String> {
    Err(NO_ENGINE.to_owned())
}

/// Says that this build has no engine.
pub fn test_remedies(_: &Trace, _: DeviceId, _: &FailedRequest, _: &Holders) -> Result<Trials, String> {
    Err(NO_ENGINE.to_owned())
}

/// Says that this build has no engine.
pub fn run(_arguments: &WhatIfArguments, _page: &mut Page<'_>) -> Result<Status, Failure> {
    Err(Failure::Usage(NO_ENGINE.to_owned()))
}
