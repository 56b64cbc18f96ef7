//! Error: why a request for memory failed.

use super::config::ConfigError;
use super::driver::DriverError;
use super::oom::OomReport;

/// Why the allocator could not do what was asked.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AllocError {
    /// Not enough memory, even after all cached memory was given back. The report says who has it.
    #[error("{0}")]
    OutOfMemory(Box<OomReport>),
    /// No device will ever have that much.
    #[error(
        "a request of {requested} bytes is more than 1 EiB, the most that one block may have: was a size negative?"
    )]
    TooLarge {
        /// Bytes asked for.
        requested: u64,
    },
    /// The settings cannot be followed on this device, or make no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A memory fraction that is none.
    #[error("invalid memory fraction {fraction}; expected a number from 0 to 1")]
    Fraction {
        /// As it was given.
        fraction: f64,
    },
    /// The driver failed at something other than finding memory.
    #[error(transparent)]
    Driver(#[from] DriverError),
}
