//! Hooks for memory that has an address from the start: of devices, of their pools, and of the host.
#![expect(unsafe_code, reason = "functions that C calls")]

use std::ffi::{c_uint, c_void};

use super::hook::{at, hook};
use crate::abi::{Answer, STREAM_PER_THREAD};
use crate::driver::Driver;
use crate::ledger::Name;
use crate::record::{self, Answered, Got, Request, Whose};

hook! {
    /// Allocates memory of the current device.
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
    /// Allocates rows of memory with a pitch chosen by the driver.
    ALLOC_PITCH = "cuMemAllocPitch" since 3020;
    fn cuMemAllocPitch_v2(address: *mut u64, pitch: *mut usize, width: usize, height: usize, element: c_uint) |call| {
        let answered = call();
        // SAFETY: the driver has written there, if the allocation succeeded.
        let row = if answered.answer == crate::abi::SUCCESS { unsafe { at(pitch) } } else { width };
        let bytes = (row as u64).saturating_mul(height as u64);
        let request = Request { called: "cuMemAllocPitch", whose: Whose::Current, bytes, stream: 0 };
        // SAFETY: the driver has written there.
        record::asked(answered, request, || Got::Block(Name::Address(unsafe { at(address) })));
        answered.answer
    }
}

hook! {
    /// Allocates managed memory, which migrates between host and devices.
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
    /// Frees memory of a device or a pool.
    FREE = "cuMemFree" since 3020;
    fn cuMemFree_v2(address: u64) |call| {
        free(address, call)
    }
}

/// Returns the effective stream if the program passes stream 0.
fn stream_of(stream: u64, is_per_thread: bool) -> u64 {
    if stream == 0 && is_per_thread { STREAM_PER_THREAD } else { stream }
}

/// Records a stream-ordered allocation. During stream capture nothing is allocated yet.
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
    /// Allocates memory of the stream's device, in stream order.
    ALLOC_ASYNC = "cuMemAllocAsync" since 11020;
    fn cuMemAllocAsync(address: *mut u64, bytes: usize, stream: u64) |call| {
        // SAFETY: the driver has written there.
        ask_in_order("cuMemAllocAsync", bytes, stream_of(stream, false), call(), || unsafe { at(address) })
    }
}

hook! {
    /// Variant of `cuMemAllocAsync` for per-thread default streams.
    ALLOC_ASYNC_PER_THREAD = "cuMemAllocAsync" since 11020 per_thread;
    fn cuMemAllocAsync_ptsz(address: *mut u64, bytes: usize, stream: u64) |call| {
        // SAFETY: the driver has written there.
        ask_in_order("cuMemAllocAsync", bytes, stream_of(stream, true), call(), || unsafe { at(address) })
    }
}

hook! {
    /// Allocates memory of a pool, in stream order.
    ALLOC_FROM_POOL = "cuMemAllocFromPoolAsync" since 11020;
    fn cuMemAllocFromPoolAsync(address: *mut u64, bytes: usize, pool: *mut c_void, stream: u64) |call| {
        // SAFETY: the driver has written there.
        ask_in_order("cuMemAllocFromPoolAsync", bytes, stream_of(stream, false), call(), || unsafe { at(address) })
    }
}

hook! {
    /// Variant of `cuMemAllocFromPoolAsync` for per-thread default streams.
    ALLOC_FROM_POOL_PER_THREAD = "cuMemAllocFromPoolAsync" since 11020 per_thread;
    fn cuMemAllocFromPoolAsync_ptsz(address: *mut u64, bytes: usize, pool: *mut c_void, stream: u64) |call| {
        // SAFETY: the driver has written there.
        ask_in_order("cuMemAllocFromPoolAsync", bytes, stream_of(stream, true), call(), || unsafe { at(address) })
    }
}

hook! {
    /// Frees memory in stream order; recorded as freed at once.
    FREE_ASYNC = "cuMemFreeAsync" since 11020;
    fn cuMemFreeAsync(address: u64, stream: u64) |call| {
        free_in_order(address, stream_of(stream, false), FREE_ASYNC.theirs(), call)
    }
}

hook! {
    /// Variant of `cuMemFreeAsync` for per-thread default streams.
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
    /// Allocates pinned host memory, which devices can copy from and to directly.
    ALLOC_HOST = "cuMemAllocHost" since 3020;
    fn cuMemAllocHost_v2(address: *mut *mut c_void, bytes: usize) |call| {
        ask_of_host("cuMemAllocHost", bytes, call(), address)
    }
}

hook! {
    /// Allocates pinned host memory, with flags.
    HOST_ALLOC = "cuMemHostAlloc" since 2020;
    fn cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, flags: c_uint) |call| {
        ask_of_host("cuMemHostAlloc", bytes, call(), address)
    }
}

hook! {
    /// Frees host memory.
    FREE_HOST = "cuMemFreeHost" since 2000;
    fn cuMemFreeHost(address: *mut c_void) |call| {
        free(address.addr() as u64, call)
    }
}
