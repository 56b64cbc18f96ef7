//! Products: the functions of `libcublasLt.so`.
#![expect(unsafe_code, reason = "functions that C calls")]

use crate::driver::put;
use crate::failure::answer;

/// `CUBLAS_STATUS_INVALID_VALUE`.
const INVALID_VALUE: i32 = 7;

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cublasLtCreate(handle: *mut u64) -> i32 {
    // SAFETY: the caller's place.
    if answer(|| unsafe { put(handle, 1) }) == 0 { 0 } else { INVALID_VALUE }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cublasLtDestroy(_handle: u64) -> i32 {
    0
}
