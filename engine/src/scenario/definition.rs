//! The definition of a scenario.

use super::options::{OptimizerKind, Options};
use super::task::Task;
use crate::device::Device;
use crate::error::Result;

/// A scenario as its users see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScenarioInfo {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is and what it shows, in a sentence.
    pub about: &'static str,
    /// The options that it has beside those of every scenario, as on the command line.
    pub options: &'static [&'static str],
    /// Its other forms, each with a name and a sentence.
    pub variants: &'static [Variant],
}

/// Another form of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Its name on the command line.
    pub name: &'static str,
    /// The difference, as a sentence.
    pub about: &'static str,
}

/// A scenario as it is run.
pub(crate) struct Scenario {
    /// What its users see.
    pub(crate) info: ScenarioInfo,
    /// The default optimizer; with none, parameters do not change.
    pub(crate) optimizer: Option<OptimizerKind>,
    /// Makes the model and its data.
    pub(crate) build: fn(&Device, &Options) -> Result<Box<dyn Task>>,
}
