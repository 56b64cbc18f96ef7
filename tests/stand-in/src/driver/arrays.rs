//! CUDA arrays. The stand-in only counts their memory.
#![cfg_attr(not(test), expect(unsafe_code, reason = "functions that C calls"))]

use std::ffi::c_uint;

use crate::failure::{Code, Result, answer, fail, put};
use crate::functions::{Out, functions};
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

/// Returns the size of an element in bytes. Supports integers and floating-point numbers of 8, 16 and 32 bits, as used
/// by tests.
fn element_bytes(format: c_uint) -> Result<usize> {
    match format {
        0x01 | 0x08 => Ok(1),
        0x02 | 0x09 | 0x10 => Ok(2),
        0x03 | 0x0a | 0x20 => Ok(4),
        _ => fail(Code::InvalidValue, format!("the stand-in does not know elements of format {format:#x}")),
    }
}

/// A block for an array; its address is the array's handle.
fn create(handle: Out<'_, u64>, sides: [usize; 3], format: c_uint, channels: c_uint, levels: u32) -> Result<()> {
    let (mut guard, device) = current()?;
    let machine = &mut *guard;
    let elements =
        |level: u32| -> usize { sides.iter().map(|side| side.checked_shr(level).unwrap_or(0).max(1)).product() };
    let bytes = (0..levels).map(elements).sum::<usize>() * channels as usize * element_bytes(format)?;
    let block = machine.blocks.reserve(&mut machine.budget, device, bytes)?;
    put(handle, block as u64)
}

functions! {
    fn cuArrayCreate_v2(handle: Out<'_, u64>, array: Option<&Array>) {
        match array {
            Some(array) => create(handle, [array.width, array.height, 0], array.format, array.channels, 1),
            None => fail(Code::InvalidValue, "no description"),
        }
    }

    fn cuArray3DCreate_v2(handle: Out<'_, u64>, array: Option<&Array3d>) -> i32 {
        cuMipmappedArrayCreate(handle, array, 1)
    }

    fn cuMipmappedArrayCreate(handle: Out<'_, u64>, array: Option<&Array3d>, levels: c_uint) {
        match array {
            Some(array) if array.flags == 0 => {
                create(handle, [array.width, array.height, array.depth], array.format, array.channels, levels)
            }
            _ => fail(Code::InvalidValue, "no description, or one with flags"),
        }
    }

    fn cuArrayDestroy, cuMipmappedArrayDestroy(handle: u64) {
        let mut guard = machine()?;
        let machine = &mut *guard;
        machine.blocks.device_of(handle as usize)?;
        machine.blocks.release(&mut machine.budget, handle as usize);
        Ok(())
    }
}
