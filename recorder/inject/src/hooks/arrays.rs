//! Hooks for arrays, which are memory for textures in a layout chosen by the driver. Recorded sizes are computed from
//! the descriptor.
#![expect(unsafe_code, reason = "functions that C calls")]

use std::ffi::c_uint;

use super::hook::{at, hooks};
use crate::abi::{Answer, Array, Array3d};
use crate::arrays::{bytes_of_2d, bytes_of_3d, bytes_of_mipmapped};
use crate::ledger::Name;
use crate::record::{self, Answered, Got, MemoryOwner, Request};

fn asked(called: &'static str, bytes: Option<u64>, answered: Answered, handle: *const u64) -> Answer {
    let Some(bytes) = bytes else { return answered.answer };
    let request = Request { called, whose: MemoryOwner::Current, bytes, stream: 0 };
    // SAFETY: the driver has written there.
    record::asked(answered, request, || Got::Block(Name::Array(unsafe { at(handle) })))
}

hooks! {
    /// Creates an array of one or two dimensions.
    "cuArrayCreate": cuArrayCreate_v2 since 3020;
    (handle: *mut u64, array: *const Array) |hook, call| {
        // SAFETY: the program's descriptor, which the driver reads too.
        let bytes = unsafe { array.as_ref() }.and_then(bytes_of_2d);
        asked("cuArrayCreate (bytes computed)", bytes, call(), handle)
    }

    /// Creates an array of up to three dimensions.
    "cuArray3DCreate": cuArray3DCreate_v2 since 3020;
    (handle: *mut u64, array: *const Array3d) |hook, call| {
        // SAFETY: the program's descriptor, which the driver reads too.
        let bytes = unsafe { array.as_ref() }.and_then(bytes_of_3d);
        asked("cuArray3DCreate (bytes computed)", bytes, call(), handle)
    }

    /// Destroys an array.
    "cuArrayDestroy": cuArrayDestroy since 2000;
    (handle: u64) |hook, call| { record::frees(Name::Array(handle), call) }

    /// Creates a mipmapped array.
    "cuMipmappedArrayCreate": cuMipmappedArrayCreate since 5000;
    (handle: *mut u64, array: *const Array3d, levels: c_uint) |hook, call| {
        // SAFETY: the program's descriptor, which the driver reads too.
        let bytes = unsafe { array.as_ref() }.and_then(|array| bytes_of_mipmapped(array, levels));
        asked("cuMipmappedArrayCreate (bytes computed)", bytes, call(), handle)
    }

    /// Destroys a mipmapped array.
    "cuMipmappedArrayDestroy": cuMipmappedArrayDestroy since 5000;
    (handle: u64) |hook, call| { record::frees(Name::Array(handle), call) }
}
