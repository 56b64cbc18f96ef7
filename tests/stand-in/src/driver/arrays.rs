//! CUDA arrays. The stand-in only accounts for their memory.
#![expect(unsafe_code, reason = "functions that C calls")]

use std::ffi::c_uint;

use super::put;
use crate::failure::{Code, Result, answer, fail};
use crate::machine::{current, machine};

/// `CUDA_ARRAY_DESCRIPTOR`.
#[repr(C)]
pub(crate) struct Array {
    width: usize,
    height: usize,
    format: c_uint,
    channels: c_uint,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[repr(C)]
pub(crate) struct Array3d {
    width: usize,
    height: usize,
    depth: usize,
    format: c_uint,
    channels: c_uint,
    flags: c_uint,
}

/// Whole numbers and fractions of 8, 16 and 32 bits: what tests use.
fn element_bytes(format: c_uint) -> Result<usize> {
    match format {
        0x01 | 0x08 => Ok(1),
        0x02 | 0x09 | 0x10 => Ok(2),
        0x03 | 0x0a | 0x20 => Ok(4),
        _ => fail(Code::InvalidValue, format!("the stand-in does not know elements of format {format:#x}")),
    }
}

/// A block for an array; its address is the array's handle.
unsafe fn create(handle: *mut u64, sides: [usize; 3], format: c_uint, channels: c_uint, levels: u32) -> Result<()> {
    let (mut guard, device) = current()?;
    let machine = &mut *guard;
    let elements =
        |level: u32| -> usize { sides.iter().map(|side| side.checked_shr(level).unwrap_or(0).max(1)).product() };
    let bytes = (0..levels).map(elements).sum::<usize>() * channels as usize * element_bytes(format)?;
    let block = machine.blocks.reserve(&mut machine.budget, device, bytes)?;
    // SAFETY: as promised by the caller.
    unsafe { put(handle, block as u64) }
}

fn destroy(handle: u64) -> Result<()> {
    let mut guard = machine()?;
    let machine = &mut *guard;
    machine.blocks.device_of(handle as usize)?;
    machine.blocks.release(&mut machine.budget, handle as usize);
    Ok(())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuArrayCreate_v2(handle: *mut u64, array: *const Array) -> i32 {
    // SAFETY: the caller's description and place.
    answer(|| match unsafe { array.as_ref() } {
        // SAFETY: as above.
        Some(array) => unsafe { create(handle, [array.width, array.height, 0], array.format, array.channels, 1) },
        None => fail(Code::InvalidValue, "no description"),
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuArray3DCreate_v2(handle: *mut u64, array: *const Array3d) -> i32 {
    // SAFETY: the caller's description and place.
    unsafe { cuMipmappedArrayCreate(handle, array, 1) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMipmappedArrayCreate(handle: *mut u64, array: *const Array3d, levels: c_uint) -> i32 {
    // SAFETY: the caller's description and place.
    answer(|| match unsafe { array.as_ref() } {
        Some(array) if array.flags == 0 => {
            let sides = [array.width, array.height, array.depth];
            // SAFETY: as above.
            unsafe { create(handle, sides, array.format, array.channels, levels) }
        }
        _ => fail(Code::InvalidValue, "no description, or one with flags"),
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuArrayDestroy(handle: u64) -> i32 {
    answer(|| destroy(handle))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMipmappedArrayDestroy(handle: u64) -> i32 {
    answer(|| destroy(handle))
}
