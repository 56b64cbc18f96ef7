//! Blocks: memory with an address from the start: of devices, of their pools, and of the host.
#![expect(unsafe_code, reason = "functions that C calls")]

use std::ffi::{c_uint, c_void};

use super::hook::{at, hook};
use crate::abi::{Answer, STREAM_PER_THREAD};
use crate::driver::Driver;
use crate::ledger::Name;
use crate::record::{self, Answered, Got, Request, Whose};

hook! {
    /// Memory of the current device.
    ALLOC = "cuMemAlloc" since 3020;
    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) |call| {
        let answered = call();
        let request = Request { called: "cuMemAlloc", whose: Whose::Current, bytes: bytes as u64, stream: 0 };
        // SAFETY: the driver has written there.
        record::asked(answered, request, || Got::Block(Name::Address(unsafe { at(address) })));
        answered.answer
    }
}

hook! {
    /// Rows of memory, each as long as the driver likes.
    ALLOC_PITCH = "cuMemAllocPitch" since 3020;
    fn cuMemAllocPitch_v2(address: *mut u64, pitch: *mut usize, width: usize, height: usize, element: c_uint) |call| {
        let answered = call();
        // SAFETY: the driver has written there, if it gave memory.
        let row = if answered.answer == crate::abi::SUCCESS { unsafe { at(pitch) } } else { width };
        let bytes = (row as u64).saturating_mul(height as u64);
        let request = Request { called: "cuMemAllocPitch", whose: Whose::Current, bytes, stream: 0 };
        // SAFETY: the driver has written there.
        record::asked(answered, request, || Got::Block(Name::Address(unsafe { at(address) })));
        answered.answer
    }
}

hook! {
    /// Memory that moves between the host and devices as it is used.
    ALLOC_MANAGED = "cuMemAllocManaged" since 6000;
    fn cuMemAllocManaged(address: *mut u64, bytes: usize, flags: c_uint) |call| {
        let answered = call();
        let request = Request { called: "cuMemAllocManaged", whose: Whose::Current, bytes: bytes as u64, stream: 0 };
        // SAFETY: the driver has written there.
        record::asked(answered, request, || Got::Block(Name::Address(unsafe { at(address) })));
        answered.answer
    }
}

fn free(address: u64, call: impl FnOnce() -> Answered) -> Answer {
    let name = Name::Address(address);
    let taken = record::gives_back(name);
    let answered = call();
    record::gave_back(answered, name, taken);
    answered.answer
}

hook! {
    /// Gives memory of a device or of a pool back.
    FREE = "cuMemFree" since 3020;
    fn cuMemFree_v2(address: u64) |call| {
        free(address, call)
    }
}

/// The stream that is meant where the program names none.
fn stream_of(stream: u64, is_per_thread: bool) -> u64 {
    if stream == 0 && is_per_thread { STREAM_PER_THREAD } else { stream }
}

/// Memory in the order of a stream. Within a graph that is being made, nothing is obtained yet.
fn ask_in_order(
    called: &'static str,
    bytes: usize,
    stream: u64,
    answered: Answered,
    address: impl FnOnce() -> u64,
) -> Answer {
    if !Driver::of(answered.function).is_capturing(stream) {
        let request = Request { called, whose: Whose::OfAddress, bytes: bytes as u64, stream };
        record::asked(answered, request, || Got::Block(Name::Address(address())));
    }
    answered.answer
}

fn free_in_order(
    address: u64,
    stream: u64,
    theirs: Option<crate::abi::Function>,
    call: impl FnOnce() -> Answered,
) -> Answer {
    if theirs.is_some_and(|function| Driver::of(function).is_capturing(stream)) {
        return call().answer;
    }
    free(address, call)
}

hook! {
    /// Memory of the stream's device.
    ALLOC_ASYNC = "cuMemAllocAsync" since 11020;
    fn cuMemAllocAsync(address: *mut u64, bytes: usize, stream: u64) |call| {
        // SAFETY: the driver has written there.
        ask_in_order("cuMemAllocAsync", bytes, stream_of(stream, false), call(), || unsafe { at(address) })
    }
}

hook! {
    /// The same, where no stream means the thread's own.
    ALLOC_ASYNC_PER_THREAD = "cuMemAllocAsync" since 11020 per_thread;
    fn cuMemAllocAsync_ptsz(address: *mut u64, bytes: usize, stream: u64) |call| {
        // SAFETY: the driver has written there.
        ask_in_order("cuMemAllocAsync", bytes, stream_of(stream, true), call(), || unsafe { at(address) })
    }
}

hook! {
    /// Memory of a pool.
    ALLOC_FROM_POOL = "cuMemAllocFromPoolAsync" since 11020;
    fn cuMemAllocFromPoolAsync(address: *mut u64, bytes: usize, pool: *mut c_void, stream: u64) |call| {
        // SAFETY: the driver has written there.
        ask_in_order("cuMemAllocFromPoolAsync", bytes, stream_of(stream, false), call(), || unsafe { at(address) })
    }
}

hook! {
    /// The same, where no stream means the thread's own.
    ALLOC_FROM_POOL_PER_THREAD = "cuMemAllocFromPoolAsync" since 11020 per_thread;
    fn cuMemAllocFromPoolAsync_ptsz(address: *mut u64, bytes: usize, pool: *mut c_void, stream: u64) |call| {
        // SAFETY: the driver has written there.
        ask_in_order("cuMemAllocFromPoolAsync", bytes, stream_of(stream, true), call(), || unsafe { at(address) })
    }
}

hook! {
    /// Gives memory back when the stream comes to it; it counts as given back at once.
    FREE_ASYNC = "cuMemFreeAsync" since 11020;
    fn cuMemFreeAsync(address: u64, stream: u64) |call| {
        free_in_order(address, stream_of(stream, false), FREE_ASYNC.theirs(), call)
    }
}

hook! {
    /// The same, where no stream means the thread's own.
    FREE_ASYNC_PER_THREAD = "cuMemFreeAsync" since 11020 per_thread;
    fn cuMemFreeAsync_ptsz(address: u64, stream: u64) |call| {
        free_in_order(address, stream_of(stream, true), FREE_ASYNC_PER_THREAD.theirs(), call)
    }
}

fn ask_of_host(called: &'static str, bytes: usize, answered: Answered, address: *mut *mut c_void) -> Answer {
    let request = Request { called, whose: Whose::Pinned, bytes: bytes as u64, stream: 0 };
    record::asked(answered, request, || {
        // SAFETY: the driver has written there.
        let place = unsafe { address.as_ref() };
        Got::Block(Name::Address(place.map_or(0, |place| place.addr() as u64)))
    });
    answered.answer
}

hook! {
    /// Memory of the host that devices copy from and to by themselves.
    ALLOC_HOST = "cuMemAllocHost" since 3020;
    fn cuMemAllocHost_v2(address: *mut *mut c_void, bytes: usize) |call| {
        ask_of_host("cuMemAllocHost", bytes, call(), address)
    }
}

hook! {
    /// The same, with wishes.
    HOST_ALLOC = "cuMemHostAlloc" since 2020;
    fn cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, flags: c_uint) |call| {
        ask_of_host("cuMemHostAlloc", bytes, call(), address)
    }
}

hook! {
    /// Gives memory of the host back.
    FREE_HOST = "cuMemFreeHost" since 2000;
    fn cuMemFreeHost(address: *mut c_void) |call| {
        free(address.addr() as u64, call)
    }
}
