//! The errors of the allocator.

use super::config::ConfigError;
use super::driver::DriverError;
use super::oom::OomReport;

/// An error of an allocator operation.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AllocError {
    /// There is not enough memory, even after all cached memory was released. The report lists the uses of the memory.
    #[error("{0}")]
    OutOfMemory(Box<OomReport>),
    /// The request is larger than any device memory.
    #[error("cannot allocate {requested} bytes: a block has at most 1 EiB; check for a negative size")]
    TooLarge {
        /// Requested bytes.
        requested: u64,
    },
    /// The settings are invalid or not supported on this device.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An invalid memory fraction.
    #[error("invalid memory fraction {fraction}; expected a number from 0 to 1")]
    Fraction {
        /// The given value.
        fraction: f64,
    },
    /// The driver failed for a reason other than lack of memory.
    #[error(transparent)]
    Driver(#[from] DriverError),
}
