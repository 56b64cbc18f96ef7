//! Hooks for arrays: memory in a layout chosen by the driver, for textures. Sizes are computed from the descriptor, and
//! recorded as computed.
#![expect(unsafe_code, reason = "functions that C calls")]

use std::ffi::c_uint;

use super::hook::{at, hook};
use crate::abi::{Answer, Array, Array3d};
use crate::arrays::{bytes_of_2d, bytes_of_3d, bytes_of_mipmapped};
use crate::ledger::Name;
use crate::record::{self, Answered, Got, Request, Whose};

fn asked(called: &'static str, bytes: Option<u64>, answered: Answered, handle: *const u64) -> Answer {
    if let Some(bytes) = bytes {
        let request = Request { called, whose: Whose::Current, bytes, stream: 0 };
        // SAFETY: the driver has written there.
        record::asked(answered, request, || Got::Block(Name::Array(unsafe { at(handle) })));
    }
    answered.answer
}

fn destroy(handle: u64, call: impl FnOnce() -> Answered) -> Answer {
    let name = Name::Array(handle);
    let taken = record::gives_back(name);
    let answered = call();
    record::gave_back(answered, name, taken);
    answered.answer
}

hook! {
    /// Creates an array of one or two dimensions.
    CREATE = "cuArrayCreate" since 3020;
    fn cuArrayCreate_v2(handle: *mut u64, array: *const Array) |call| {
        // SAFETY: the program's descriptor, which the driver reads too.
        let bytes = unsafe { array.as_ref() }.and_then(bytes_of_2d);
        asked("cuArrayCreate (bytes computed)", bytes, call(), handle)
    }
}

hook! {
    /// Creates an array of up to three dimensions.
    CREATE_3D = "cuArray3DCreate" since 3020;
    fn cuArray3DCreate_v2(handle: *mut u64, array: *const Array3d) |call| {
        // SAFETY: the program's descriptor, which the driver reads too.
        let bytes = unsafe { array.as_ref() }.and_then(bytes_of_3d);
        asked("cuArray3DCreate (bytes computed)", bytes, call(), handle)
    }
}

hook! {
    /// Destroys an array.
    DESTROY = "cuArrayDestroy" since 2000;
    fn cuArrayDestroy(handle: u64) |call| {
        destroy(handle, call)
    }
}

hook! {
    /// Creates a mipmapped array.
    CREATE_MIPMAPPED = "cuMipmappedArrayCreate" since 5000;
    fn cuMipmappedArrayCreate(handle: *mut u64, array: *const Array3d, levels: c_uint) |call| {
        // SAFETY: the program's descriptor, which the driver reads too.
        let bytes = unsafe { array.as_ref() }.and_then(|array| bytes_of_mipmapped(array, levels));
        asked("cuMipmappedArrayCreate (bytes computed)", bytes, call(), handle)
    }
}

hook! {
    /// Destroys a mipmapped array.
    DESTROY_MIPMAPPED = "cuMipmappedArrayDestroy" since 5000;
    fn cuMipmappedArrayDestroy(handle: u64) |call| {
        destroy(handle, call)
    }
}
