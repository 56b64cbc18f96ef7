//! Hooks for physical memory that is allocated without addresses. Address reservations take no memory and are not
//! hooked. Memory imported from another process is not hooked either; it arrives through other calls and is not in the
//! ledger.
#![expect(unsafe_code, reason = "functions that C calls")]

use std::ffi::c_ulonglong;

use super::hook::{at, hooks};
use crate::abi::{ON_DEVICE, Properties};
use crate::record::{self, Got, MemoryOwner, Request};

hooks! {
    /// Allocates physical memory, without addresses.
    "cuMemCreate": cuMemCreate since 10020;
    (handle: *mut c_ulonglong, bytes: usize, properties: *const Properties, flags: c_ulonglong) |hook, call| {
        let answered = call();
        // SAFETY: the program's properties, which the driver has read.
        let whose = match unsafe { properties.as_ref() } {
            Some(asked) if asked.location.kind == ON_DEVICE => MemoryOwner::Device(asked.location.id),
            Some(_) => MemoryOwner::Pinned,
            None => MemoryOwner::Current,
        };
        let request = Request { called: hook.short, whose, bytes: bytes as u64, stream: 0 };
        // SAFETY: the driver has written there.
        record::asked(answered, request, || Got::Pages(unsafe { at(handle) }))
    }

    /// Releases a handle of physical memory.
    "cuMemRelease": cuMemRelease since 10020;
    (handle: c_ulonglong) |hook, call| { record::releases(handle, call) }

    /// Returns another handle of the memory mapped at an address.
    "cuMemRetainAllocationHandle": cuMemRetainAllocationHandle since 11000;
    (handle: *mut c_ulonglong, address: *mut std::ffi::c_void) |hook, call| {
        // SAFETY: the driver has written there.
        record::done(call(), |ledger, _| ledger.retain(address.addr() as u64, unsafe { at(handle) }))
    }

    /// Maps physical memory to addresses.
    "cuMemMap": cuMemMap since 10020;
    (address: u64, bytes: usize, offset: usize, handle: c_ulonglong, flags: c_ulonglong) |hook, call| {
        record::done(call(), |ledger, send| ledger.map(address, bytes as u64, handle, send))
    }

    /// Unmaps physical memory from addresses.
    "cuMemUnmap": cuMemUnmap since 10020;
    (address: u64, bytes: usize) |hook, call| {
        record::done(call(), |ledger, send| ledger.unmap(address, bytes as u64, send))
    }
}
