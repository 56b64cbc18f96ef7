//! The types that define a scenario.

use super::options::{OptimizerKind, Options};
use super::task::Task;
use crate::{Device, Result};

/// Public description of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScenarioInfo {
    /// Name on the command line.
    pub name: &'static str,
    /// Description of the scenario and its purpose, without a full stop.
    pub about: &'static str,
    /// Supported options in addition to the common ones, as on the command line.
    pub options: &'static [&'static str],
    /// Variants of the scenario.
    pub variants: &'static [Variant],
}

/// A variant of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Name on the command line.
    pub name: &'static str,
    /// Description of the difference, without a full stop.
    pub about: &'static str,
}

pub(crate) struct Scenario {
    pub(crate) info: ScenarioInfo,
    /// Default optimizer; `None` if parameters are not updated.
    pub(crate) optimizer: Option<OptimizerKind>,
    pub(crate) build: fn(&Device, &Options) -> Result<Box<dyn Task>>,
}
