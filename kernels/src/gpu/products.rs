//! Products: matrix products by cuBLASLt.
#![expect(unsafe_code, reason = "calls cuBLASLt's C functions")]

use cudarc::cublaslt::{result, sys};

use super::handles::Handle;
use crate::error::{Error, Result};

/// A context's handle of cuBLASLt.
#[derive(Debug)]
pub(super) struct Products {
    library: Handle<sys::cublasLtContext>,
}

impl Products {
    /// For the device whose context is current.
    pub(super) fn new() -> Result<Self> {
        let failed = |error: result::CublasError| Error::Products {
            doing: "cublasLtCreate".to_owned(),
            status: error.to_string(),
        };
        Ok(Self { library: Handle(result::create_handle().map_err(failed)?) })
    }
}

impl Drop for Products {
    fn drop(&mut self) {
        // SAFETY: made by `new`; no product is asked for any more.
        let _ = unsafe { result::destroy_handle(self.library.0) };
    }
}
