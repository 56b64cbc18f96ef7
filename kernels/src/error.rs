//! Errors of CUDA operations.

use std::path::PathBuf;

/// An error of an operation on a CUDA device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    // Missing components.
    /// The driver library is not installed.
    #[error(
        "no CUDA driver: libcuda.so.1 was not found; install the NVIDIA driver, or use --device cpu or --device meta"
    )]
    NoDriver,
    /// The kernel compiler NVRTC is not installed.
    #[error(
        "no CUDA compiler: libnvrtc.so.13 (or .12) was not found; install the CUDA toolkit, or `pip install \
         nvidia-cuda-nvrtc`; if the library is still not found, set HIGHWATER_CUDA_PATH to the folder that contains it"
    )]
    NoCompiler,
    /// The matrix multiplication library cuBLASLt is not installed.
    #[error(
        "no cuBLASLt: libcublasLt.so.13 (or .12) was not found; install the CUDA toolkit, or `pip install \
         nvidia-cublas`; if the library is still not found, set HIGHWATER_CUDA_PATH to the folder that contains it"
    )]
    NoProducts,
    /// A library is of a later major version than the driver supports.
    #[error(
        "{library} {}.{} needs a newer driver: this one supports CUDA up to {}.{}; update the driver, or set \
         HIGHWATER_CUDA_PATH to the folder of {library} {}", version.0, version.1, driver.0, driver.1, driver.0
    )]
    TooNew {
        /// The library's name.
        library: &'static str,
        /// The major and minor version.
        version: (u32, u32),
        /// The newest CUDA version that the driver supports.
        driver: (u32, u32),
    },
    /// The driver has no device with this ordinal.
    #[error("CUDA device {asked} does not exist: the number of devices is {count}")]
    NoDevice {
        /// The requested ordinal.
        asked: u16,
        /// The number of devices.
        count: u16,
    },
    /// The device cannot run the kernels.
    #[error("{name} has compute capability {}.{}; the kernels need 8.0 or later", capability.0, capability.1)]
    TooOld {
        /// The device's name.
        name: String,
        /// The compute capability.
        capability: (i32, i32),
    },

    // Failed operations.
    /// The device does not have enough free memory.
    #[error("the device does not have enough free memory for {doing}")]
    OutOfMemory {
        /// Name of the failed operation.
        doing: String,
    },
    /// A call of the CUDA driver failed.
    #[error("the CUDA driver failed at {doing}: {message}")]
    Driver {
        /// The operation, such as "cuMemAlloc" or "a launch of reduce::max".
        doing: String,
        /// The driver's error message.
        message: String,
    },
    /// A kernel does not compile.
    #[error("{unit} does not compile for {arch}:\n{log}")]
    Compile {
        /// The file and its dtypes.
        unit: String,
        /// The GPU architecture, such as `sm_90`.
        arch: String,
        /// The compiler's log.
        log: String,
    },
    /// A call of cuBLASLt failed.
    #[error("cuBLASLt failed at {doing}: {status}")]
    Products {
        /// Name of the failed operation.
        doing: String,
        /// The library's error message.
        status: String,
    },
    /// cuBLASLt does not support this product.
    #[error("cuBLASLt has no algorithm for {product}")]
    NoAlgorithm {
        /// A description of the product, with its sizes and layouts.
        product: String,
    },
    /// The folder for compiled kernels cannot be used.
    #[error("cannot cache compiled kernels in {}: {why}", path.display())]
    Cache {
        /// The cache folder.
        path: PathBuf,
        /// The underlying error.
        why: std::io::Error,
    },
}

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

pub(crate) trait ToResult<T> {
    /// Converts a driver error to an [`Error`] that names the failed operation.
    fn context(self, doing: &str) -> Result<T>;
}

impl<T> ToResult<T> for Result<T, cudarc::driver::DriverError> {
    fn context(self, doing: &str) -> Result<T> {
        use cudarc::driver::sys::CUresult;
        self.map_err(|error| match error.0 {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => Error::OutOfMemory { doing: doing.to_owned() },
            CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
            | CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
            | CUresult::CUDA_ERROR_STREAM_CAPTURE_MERGE
            | CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION
            | CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
            | CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD => Error::Driver {
                doing: doing.to_owned(),
                message: "a CUDA graph is being captured, which is not supported: run this part without capture"
                    .to_owned(),
            },
            code => {
                let text = |words: Result<&std::ffi::CStr, _>| words.map(|words| words.to_string_lossy().into_owned());
                let name = text(error.error_name()).unwrap_or_else(|_| format!("{code:?}"));
                let words = text(error.error_string()).unwrap_or_default();
                Error::Driver { doing: doing.to_owned(), message: format!("{name}: {words}") }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use cudarc::driver::DriverError;
    use cudarc::driver::sys::CUresult;

    use super::*;

    #[test]
    fn captured_streams_and_full_devices_are_reported_in_our_words() {
        let context =
            |code| Err::<(), _>(DriverError(code)).context("cuMemAlloc").expect_err("it is an error").to_string();
        let captured = context(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        assert!(captured.contains("cuMemAlloc") && captured.contains("CUDA graph"), "{captured}");
        assert!(captured.contains("not supported") && captured.contains("without capture"), "{captured}");
        assert_eq!(captured, context(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT));
        let full = context(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        assert_eq!(full, "the device does not have enough free memory for cuMemAlloc");
    }
}
