//! What can go wrong when CUDA is asked for.

/// Why there is no CUDA device to use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The driver's library is not installed.
    #[error(
        "no CUDA driver: libcuda.so.1 was not found; install the NVIDIA driver, or use --device cpu or --device meta"
    )]
    NoDriver,
    /// The driver is there, and refuses.
    #[error("the CUDA driver cannot be used: {0}")]
    Driver(cudarc::driver::DriverError),
    /// The driver knows no such device.
    #[error("there is no CUDA device {asked}: the driver has {count}")]
    NoDevice {
        /// The ordinal asked for.
        asked: u16,
        /// How many there are.
        count: u16,
    },
}

/// This crate's results.
pub type Result<T, E = Error> = std::result::Result<T, E>;
