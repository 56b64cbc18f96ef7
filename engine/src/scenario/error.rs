//! The errors of recording a scenario.

/// An error that prevents recording a scenario. For [`record`](super::record), running out of memory is not an error,
/// because recordings exist to study it; a [`Report`](super::Report) describes it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// No scenario has this name.
    #[error("unknown scenario '{name}'; the scenarios are {}", known.join(", "))]
    UnknownScenario {
        /// The requested name.
        name: String,
        /// Names of all scenarios.
        known: Vec<&'static str>,
    },
    /// No optimizer has this name.
    #[error("unknown optimizer '{name}'; expected sgd, adam, adamw or adamw8bit")]
    UnknownOptimizer {
        /// The requested name.
        name: String,
    },
    /// An option that the scenario does not support.
    #[error("{scenario} does not support {option}; its options are {}", known.join(", "))]
    UnknownOption {
        /// Name of the scenario.
        scenario: &'static str,
        /// The option, as on the command line.
        option: &'static str,
        /// The supported options.
        known: Vec<&'static str>,
    },
    /// The scenario has no variant of this name.
    #[error(
        "{scenario} has no variant '{name}'; {}",
        if known.is_empty() { "it has no variants".to_owned() } else { format!("it has {}", known.join(", ")) }
    )]
    UnknownVariant {
        /// Name of the scenario.
        scenario: &'static str,
        /// The requested name.
        name: String,
        /// Names of the scenario's variants.
        known: Vec<&'static str>,
    },
    /// An invalid value of an option.
    #[error("invalid value {value} for {option}: {need}")]
    OptionValue {
        /// The option, as on the command line.
        option: &'static str,
        /// The value as given.
        value: String,
        /// The requirement, such as `expected at least 1`.
        need: &'static str,
    },
    /// Options that cannot be combined.
    #[error("{option} cannot be combined with {other}: {reason}")]
    Conflict {
        /// One option, as on the command line.
        option: &'static str,
        /// The other option, as on the command line.
        other: &'static str,
        /// The reason and a remedy.
        reason: &'static str,
    },
    /// The CUDA device cannot be used.
    #[error("cannot run on cuda:{ordinal}: {reason}")]
    Cuda {
        /// Ordinal of the CUDA device.
        ordinal: u16,
        /// The reason and a remedy.
        reason: String,
    },
    /// Invalid settings of the allocator.
    #[error(transparent)]
    AllocConfig(#[from] highwater_allocator::ConfigError),
    /// Setup or training failed. [`record`](super::record) reports a failed allocation in
    /// [`Report::oom`](super::Report::oom) instead, unless the request exceeds the largest size that the allocator
    /// supports.
    #[error(transparent)]
    Training(#[from] crate::Error),
    /// The recording failed.
    #[error(transparent)]
    Recording(#[from] highwater_recorder::Error),
}

impl ScenarioError {
    /// Returns whether setup or training ran out of memory, or requested more than the allocator supports.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Training(error) if error.is_out_of_memory())
    }
}
