//! The functions of `libcuda.so.1`, under the names that cudarc and CUDA's runtime look up.
#![expect(unsafe_code, reason = "writes to places that C gives")]

pub(crate) mod devices;
pub(crate) mod memory;
mod pages;
mod streams;
mod kernels;
mod pools;
mod arrays;
mod lookup;

use crate::failure::{Code, Result, fail};

/// Writes a result to an output parameter.
///
/// # Safety
/// The place is null or can be written.
pub(crate) unsafe fn put<V>(place: *mut V, value: V) -> Result<()> {
    if place.is_null() {
        return fail(Code::InvalidValue, "no place for the answer");
    }
    // SAFETY: as promised by the caller.
    unsafe { place.write(value) };
    Ok(())
}
