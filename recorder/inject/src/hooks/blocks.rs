//! Hooks for allocations that have an address from the start: memory of devices, of memory pools, and of the host.
#![expect(unsafe_code, reason = "functions that C calls")]

use std::ffi::{c_uint, c_void};

use super::hook::{Hook, at, hooks};
use crate::abi::{Answer, STREAM_PER_THREAD, SUCCESS};
use crate::driver::Driver;
use crate::ledger::Name;
use crate::record::{self, Answered, Got, MemoryOwner, Request};

fn asked(hook: &Hook, bytes: u64, answered: Answered, address: *const u64) -> Answer {
    let request = Request { called: hook.short, whose: MemoryOwner::Current, bytes, stream: 0 };
    // SAFETY: the driver has written there.
    record::asked(answered, request, || Got::Block(Name::Address(unsafe { at(address) })))
}

/// Returns the per-thread default stream if a per-thread function is called with stream 0; otherwise `stream`.
fn stream_of(hook: &Hook, stream: u64) -> u64 {
    if stream == 0 && hook.is_per_thread { STREAM_PER_THREAD } else { stream }
}

/// Records a stream-ordered allocation, except during stream capture, where no memory is allocated yet.
fn asked_in_order(hook: &Hook, bytes: usize, stream: u64, answered: Answered, address: *const u64) -> Answer {
    let stream = stream_of(hook, stream);
    if Driver::of(answered.function).is_capturing(stream) {
        return answered.answer;
    }
    let request = Request { called: hook.short, whose: MemoryOwner::OfAddress, bytes: bytes as u64, stream };
    // SAFETY: the driver has written there.
    record::asked(answered, request, || Got::Block(Name::Address(unsafe { at(address) })))
}

fn asked_of_host(hook: &Hook, bytes: usize, answered: Answered, address: *mut *mut c_void) -> Answer {
    let request = Request { called: hook.short, whose: MemoryOwner::Pinned, bytes: bytes as u64, stream: 0 };
    record::asked(answered, request, || {
        // SAFETY: the driver has written there.
        let place = unsafe { address.as_ref() };
        Got::Block(Name::Address(place.map_or(0, |place| place.addr() as u64)))
    })
}

hooks! {
    /// Allocates memory of the current device.
    "cuMemAlloc": cuMemAlloc_v2 since 3020;
    (address: *mut u64, bytes: usize) |hook, call| { asked(hook, bytes as u64, call(), address) }

    /// Allocates rows of memory with a pitch chosen by the driver.
    "cuMemAllocPitch": cuMemAllocPitch_v2 since 3020;
    (address: *mut u64, pitch: *mut usize, width: usize, height: usize, element: c_uint) |hook, call| {
        let answered = call();
        // SAFETY: the driver has written there, if the allocation succeeded.
        let row = if answered.answer == SUCCESS { unsafe { at(pitch) } } else { width };
        asked(hook, (row as u64).saturating_mul(height as u64), answered, address)
    }

    /// Allocates managed memory, which migrates between host and devices.
    "cuMemAllocManaged": cuMemAllocManaged since 6000;
    (address: *mut u64, bytes: usize, flags: c_uint) |hook, call| { asked(hook, bytes as u64, call(), address) }

    /// Frees memory of a device or a pool.
    "cuMemFree": cuMemFree_v2 since 3020;
    (address: u64) |hook, call| { record::frees(Name::Address(address), call) }

    /// Allocates memory of the stream's device, in stream order.
    "cuMemAllocAsync": cuMemAllocAsync since 11020, cuMemAllocAsync_ptsz since 11020 per_thread;
    (address: *mut u64, bytes: usize, stream: u64) |hook, call| { asked_in_order(hook, bytes, stream, call(), address) }

    /// Allocates memory of a pool, in stream order.
    "cuMemAllocFromPoolAsync":
        cuMemAllocFromPoolAsync since 11020, cuMemAllocFromPoolAsync_ptsz since 11020 per_thread;
    (address: *mut u64, bytes: usize, pool: *mut c_void, stream: u64) |hook, call| {
        asked_in_order(hook, bytes, stream, call(), address)
    }

    /// Frees memory in stream order. Recorded as freed at once.
    "cuMemFreeAsync": cuMemFreeAsync since 11020, cuMemFreeAsync_ptsz since 11020 per_thread;
    (address: u64, stream: u64) |hook, call| {
        if hook.theirs().is_some_and(|function| Driver::of(function).is_capturing(stream_of(hook, stream))) {
            return call().answer;
        }
        record::frees(Name::Address(address), call)
    }

    /// Allocates pinned host memory, which devices can access directly.
    "cuMemAllocHost": cuMemAllocHost_v2 since 3020;
    (address: *mut *mut c_void, bytes: usize) |hook, call| { asked_of_host(hook, bytes, call(), address) }

    /// Allocates pinned host memory, with flags.
    "cuMemHostAlloc": cuMemHostAlloc since 2020;
    (address: *mut *mut c_void, bytes: usize, flags: c_uint) |hook, call| {
        asked_of_host(hook, bytes, call(), address)
    }

    /// Frees host memory.
    "cuMemFreeHost": cuMemFreeHost since 2000;
    (address: *mut c_void) |hook, call| { record::frees(Name::Address(address.addr() as u64), call) }
}
