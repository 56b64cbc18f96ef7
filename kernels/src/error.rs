//! What can go wrong when CUDA is asked for.

use std::path::PathBuf;

/// Why something could not be done on a CUDA device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    // What is missing.
    /// The driver's library is not installed.
    #[error(
        "no CUDA driver: libcuda.so.1 was not found; install the NVIDIA driver, or use --device cpu or --device meta"
    )]
    NoDriver,
    /// The compiler of kernels is not installed.
    #[error(
        "no CUDA compiler: libnvrtc.so.13 (or .12) was not found; install the CUDA toolkit, or `pip install \
         nvidia-cuda-nvrtc`, and name the folder that holds it in HIGHWATER_CUDA_PATH"
    )]
    NoCompiler,
    /// The library of matrix products is not installed.
    #[error(
        "no cuBLASLt: libcublasLt.so.13 (or .12) was not found; install the CUDA toolkit, or `pip install nvidia-cublas`, \
         and name the folder that holds it in HIGHWATER_CUDA_PATH"
    )]
    NoProducts,
    /// The driver knows no such device.
    #[error("CUDA device {asked} does not exist: the driver has {count}")]
    NoDevice {
        /// The ordinal asked for.
        asked: u16,
        /// How many there are.
        count: u16,
    },
    /// The device cannot run the kernels.
    #[error("{name} has compute capability {}.{}; the kernels need 8.0 or later", capability.0, capability.1)]
    TooOld {
        /// The device's name.
        name: String,
        /// What it has.
        capability: (i32, i32),
    },

    // What failed.
    /// The device has not enough free memory.
    #[error("the device has not enough free memory for {doing}")]
    OutOfMemory {
        /// What was asked of the driver.
        doing: String,
    },
    /// The driver refuses.
    #[error("the CUDA driver failed at {doing}: {message}")]
    Driver {
        /// What was asked of it: "cuMemAlloc", "a launch of reduce::max" …
        doing: String,
        /// Its own words.
        message: String,
    },
    /// A kernel does not compile.
    #[error("{unit} does not compile for {arch}:\n{log}")]
    Compile {
        /// Which file, for which types.
        unit: String,
        /// The architecture.
        arch: String,
        /// What the compiler says.
        log: String,
    },
    /// cuBLASLt refuses.
    #[error("cuBLASLt failed at {doing}: {status}")]
    Products {
        /// What was asked of it.
        doing: String,
        /// Its own words.
        status: String,
    },
    /// cuBLASLt cannot compute this at all.
    #[error("cuBLASLt has no algorithm for {product}")]
    NoAlgorithm {
        /// Which product: its sizes and layouts.
        product: String,
    },
    /// A folder for compiled kernels that cannot be used.
    #[error("cannot cache compiled kernels in {}: {why}", path.display())]
    Cache {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        why: std::io::Error,
    },
}

/// This crate's results.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Words for the driver's errors.
pub(crate) trait ToResult<T> {
    /// Says what was being done.
    fn told(self, doing: &str) -> Result<T>;
}

impl<T> ToResult<T> for Result<T, cudarc::driver::DriverError> {
    fn told(self, doing: &str) -> Result<T> {
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
                message: "a CUDA graph is being captured, which is not supported: run this part without capturing"
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
    fn captured_streams_and_full_devices_are_told_in_our_words() {
        let told = |code| Err::<(), _>(DriverError(code)).told("cuMemAlloc").expect_err("it is an error").to_string();
        let captured = told(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        assert!(captured.contains("cuMemAlloc") && captured.contains("CUDA graph"), "{captured}");
        assert!(captured.contains("not supported") && captured.contains("without capturing"), "{captured}");
        assert_eq!(captured, told(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT));
        let full = told(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        assert_eq!(full, "the device has not enough free memory for cuMemAlloc");
    }
}
