//! Compiled kernels, as passed from the compiler to the driver: a shared object with a header.
//!
//! ```text
//!  0  "HWstndin"   distinguishes it from GPU code
//!  8  u64          bytes of the shared object
//! 16  the shared object
//! ```
#![expect(unsafe_code, reason = "reads an image at an address")]

use crate::failure::{Code, Result, fail};

const MARK: [u8; 8] = *b"HWstndin";
const HEADER: usize = 16;

/// Returns the image of a shared object.
pub(crate) fn image_of(object: &[u8]) -> Vec<u8> {
    [&MARK[..], &(object.len() as u64).to_le_bytes(), object].concat()
}

/// Returns the shared object in an image.
///
/// # Safety
/// `image` must point to at least eight readable bytes; if they are `HWstndin`, to a whole image.
pub(crate) unsafe fn object_in<'a>(image: *const u8) -> Result<&'a [u8]> {
    // SAFETY: as promised by the caller.
    if image.is_null() || unsafe { image.cast::<[u8; 8]>().read_unaligned() } != MARK {
        return fail(Code::InvalidImage, "the code is not the stand-in's: another compiler made it");
    }
    // SAFETY: it is an image, which has a header and as many bytes as that says.
    unsafe {
        let bytes = u64::from_le_bytes(image.add(8).cast::<[u8; 8]>().read_unaligned());
        Ok(std::slice::from_raw_parts(image.add(HEADER), bytes as usize))
    }
}
