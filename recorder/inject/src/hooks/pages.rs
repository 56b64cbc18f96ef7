//! Hooks for physical memory that is allocated without addresses. Address reservations take no memory and are not
//! hooked, nor is memory imported from another process, which comes in by other calls and is unknown to the ledger.
#![expect(unsafe_code, reason = "functions that C calls")]

use std::ffi::c_ulonglong;

use super::hook::{at, hook};
use crate::abi::{ON_DEVICE, Properties};
use crate::record::{self, Got, Request, Whose};

hook! {
    /// Allocates physical memory, without addresses.
    CREATE = "cuMemCreate" since 10020;
    fn cuMemCreate(handle: *mut c_ulonglong, bytes: usize, properties: *const Properties, flags: c_ulonglong) |call| {
        let answered = call();
        // SAFETY: the program's properties, which the driver has read.
        let whose = match unsafe { properties.as_ref() } {
            Some(asked) if asked.location.kind == ON_DEVICE => Whose::Device(asked.location.id),
            Some(_) => Whose::Pinned,
            None => Whose::Current,
        };
        let request = Request { called: "cuMemCreate", whose, bytes: bytes as u64, stream: 0 };
        // SAFETY: the driver has written there.
        record::asked(answered, request, || Got::Pages(unsafe { at(handle) }));
        answered.answer
    }
}

hook! {
    /// Releases a handle of physical memory.
    RELEASE = "cuMemRelease" since 10020;
    fn cuMemRelease(handle: c_ulonglong) |call| {
        let released = record::releases(handle);
        let answered = call();
        record::released(answered, released);
        answered.answer
    }
}

hook! {
    /// Returns another handle of the memory mapped at an address.
    RETAIN = "cuMemRetainAllocationHandle" since 11000;
    fn cuMemRetainAllocationHandle(handle: *mut c_ulonglong, address: *mut std::ffi::c_void) |call| {
        let answered = call();
        // SAFETY: the driver has written there.
        record::done(answered, |ledger| ledger.retain(address.addr() as u64, unsafe { at(handle) }));
        answered.answer
    }
}

hook! {
    /// Maps physical memory to addresses.
    MAP = "cuMemMap" since 10020;
    fn cuMemMap(address: u64, bytes: usize, offset: usize, handle: c_ulonglong, flags: c_ulonglong) |call| {
        let answered = call();
        record::mapped(answered, address, bytes as u64, handle);
        answered.answer
    }
}

hook! {
    /// Unmaps physical memory from addresses.
    UNMAP = "cuMemUnmap" since 10020;
    fn cuMemUnmap(address: u64, bytes: usize) |call| {
        let answered = call();
        record::unmapped(answered, address, bytes as u64);
        answered.answer
    }
}
