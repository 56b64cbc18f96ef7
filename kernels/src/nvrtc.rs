//! The table of those functions of NVRTC (CUDA's run-time compiler) that this crate calls.
#![expect(unsafe_code, reason = "calls the compiler's C functions")]

use std::ffi::{c_char, c_int};

use cudarc::nvrtc::sys::{nvrtcProgram, nvrtcResult};

use crate::error::{Error, Result};
use crate::functions::functions;

functions! {
    /// The loaded NVRTC library.
    Nvrtc {
        fn nvrtcVersion(major: *mut c_int, minor: *mut c_int) -> nvrtcResult;
        fn nvrtcCreateProgram(
            program: *mut nvrtcProgram, text: *const c_char, name: *const c_char, count: c_int,
            headers: *const *const c_char, names: *const *const c_char,
        ) -> nvrtcResult;
        fn nvrtcCompileProgram(program: nvrtcProgram, count: c_int, options: *const *const c_char) -> nvrtcResult;
        fn nvrtcGetProgramLogSize(program: nvrtcProgram, bytes: *mut usize) -> nvrtcResult;
        fn nvrtcGetProgramLog(program: nvrtcProgram, log: *mut c_char) -> nvrtcResult;
        fn nvrtcGetCUBINSize(program: nvrtcProgram, bytes: *mut usize) -> nvrtcResult;
        fn nvrtcGetCUBIN(program: nvrtcProgram, image: *mut c_char) -> nvrtcResult;
        fn nvrtcDestroyProgram(program: *mut nvrtcProgram) -> nvrtcResult;
    }
}

impl Nvrtc {
    /// Returns the major and minor version.
    ///
    /// # Errors
    /// Returns [`Error::NoCompiler`] if NVRTC does not report one.
    pub(crate) fn version(&self) -> Result<(u32, u32)> {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both pointers are valid for writing an integer.
        unsafe { (self.nvrtcVersion)(&raw mut major, &raw mut minor) }.result().map_err(|_| Error::NoCompiler)?;
        Ok((major.unsigned_abs(), minor.unsigned_abs()))
    }
}
