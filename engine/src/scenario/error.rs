//! Reasons why a scenario could not be recorded.

/// Why a scenario could not be recorded. Running out of memory is not among them: that is what a recording is for, and
/// [`Report`](super::Report) tells of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// No scenario of that name.
    #[error("unknown scenario '{name}'; the scenarios are {}", known.join(", "))]
    UnknownScenario {
        /// As requested.
        name: String,
        /// The existing ones.
        known: Vec<&'static str>,
    },
    /// No optimizer of that name.
    #[error("unknown optimizer '{name}'; expected sgd, adam or adamw")]
    UnknownOptimizer {
        /// As requested.
        name: String,
    },
    /// An option that means nothing for this scenario.
    #[error("{scenario} does not support {option}; its options are {}", known.join(", "))]
    UnknownOption {
        /// The scenario.
        scenario: &'static str,
        /// As it is written on the command line.
        option: &'static str,
        /// The existing ones.
        known: Vec<&'static str>,
    },
    /// No other form of that name.
    #[error(
        "{scenario} has no variant '{name}'; {}",
        if known.is_empty() { "it has only the one form".to_owned() } else { format!("it has {}", known.join(", ")) }
    )]
    UnknownVariant {
        /// The scenario.
        scenario: &'static str,
        /// As requested.
        name: String,
        /// The existing ones.
        known: Vec<&'static str>,
    },
    /// An option with a value that it cannot have.
    #[error("invalid value {value} for {option}: {need}")]
    OptionValue {
        /// As it is written on the command line.
        option: &'static str,
        /// The value.
        value: String,
        /// The expectation, as a sentence.
        need: &'static str,
    },
    /// No CUDA device to run on.
    #[error("cannot run on cuda:{ordinal}: {reason}")]
    Cuda {
        /// The device asked for.
        ordinal: u16,
        /// Why not, and what to do.
        reason: String,
    },
    /// The settings of the allocator are wrong.
    #[error(transparent)]
    AllocConfig(#[from] highwater_allocator::ConfigError),
    /// The training failed, for another reason than memory.
    #[error(transparent)]
    Training(#[from] crate::Error),
    /// The recording failed.
    #[error(transparent)]
    Recording(#[from] highwater_recorder::Error),
}
