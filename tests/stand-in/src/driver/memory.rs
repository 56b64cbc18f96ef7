//! Device memory, host memory, and copies between them.
#![expect(unsafe_code, reason = "functions that C calls")]

use std::ffi::{c_uchar, c_uint, c_void};
use std::ptr::{with_exposed_provenance as at, with_exposed_provenance_mut as at_mut};

use super::put;
use crate::failure::{Code, Result, answer, fail};
use crate::machine::{current, machine};
use crate::streams::Work;

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> i32 {
    answer(|| {
        let (machine, device) = current()?;
        // SAFETY: the caller's places.
        unsafe {
            put(free, machine.budget.free(device) as usize)?;
            put(total, machine.budget.total() as usize)
        }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> i32 {
    answer(|| {
        let (mut guard, device) = current()?;
        let machine = &mut *guard;
        machine.streams.check(device)?;
        let block = machine.blocks.reserve(&mut machine.budget, device, bytes)?;
        // SAFETY: the caller's place.
        unsafe { put(address, block as u64) }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemFree_v2(address: u64) -> i32 {
    answer(|| {
        let mut guard = machine()?;
        let machine = &mut *guard;
        if address == 0 {
            return Ok(());
        }
        let device = machine.blocks.device_of(address as usize)?;
        machine.streams.drain_device(device)?;
        machine.blocks.release(&mut machine.budget, address as usize);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, _flags: c_uint) -> i32 {
    answer(|| {
        let (mut machine, device) = current()?;
        machine.streams.check(device)?;
        let block = machine.pinned.reserve_pinned(device, bytes)?;
        // SAFETY: the caller's place.
        unsafe { put(address, at_mut(block)) }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemFreeHost(address: *mut c_void) -> i32 {
    answer(|| {
        let mut guard = machine()?;
        let machine = &mut *guard;
        machine.pinned.device_of(address.addr())?;
        machine.streams.drain_all()?;
        machine.pinned.release(&mut machine.budget, address.addr());
        Ok(())
    })
}

fn copy(to: u64, from: u64, bytes: usize) -> Work {
    Box::new(move || {
        // SAFETY: both were checked to be memory that was handed out, which waits for work when it is given back, or
        // are the caller's until the stream has been waited for.
        unsafe { std::ptr::copy(at::<u8>(from as usize), at_mut::<u8>(to as usize), bytes) };
        Ok(())
    })
}

/// Copies from pinned memory in stream order; from other host memory at once.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: u64) -> i32 {
    answer(|| {
        let (mut machine, device) = current()?;
        let stream = machine.streams.find(stream, device)?;
        machine.check_device(to, bytes)?;
        if machine.pinned.hold(from.addr(), bytes) {
            return machine.streams.give(stream, copy(to, from.expose_provenance() as u64, bytes));
        }
        if from.is_null() {
            return fail(Code::InvalidValue, "a copy from nowhere");
        }
        if machine.streams.is_idle() {
            return Ok(());
        }
        // SAFETY: the caller's memory, as long as this call.
        let taken = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), bytes) }.to_vec();
        let work: Work = Box::new(move || copy(to, taken.as_ptr().expose_provenance() as u64, bytes)());
        machine.streams.give(stream, work)
    })
}

/// Copies to pinned memory in stream order; to other host memory before this returns.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: u64) -> i32 {
    answer(|| {
        let (mut machine, device) = current()?;
        let stream = machine.streams.find(stream, device)?;
        machine.check_device(from, bytes)?;
        if to.is_null() {
            return fail(Code::InvalidValue, "a copy to nowhere");
        }
        if machine.streams.is_idle() {
            // SAFETY: the caller's memory, which is to be written.
            unsafe { std::ptr::write_bytes(to.cast::<u8>(), 0, bytes) };
            return Ok(());
        }
        machine.streams.give(stream, copy(to.expose_provenance() as u64, from, bytes))?;
        if machine.pinned.hold(to.addr(), bytes) { Ok(()) } else { machine.streams.drain(stream) }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: u64) -> i32 {
    answer(|| {
        let (mut machine, device) = current()?;
        let stream = machine.streams.find(stream, device)?;
        machine.check_device(to, bytes)?;
        machine.check_device(from, bytes)?;
        machine.streams.give(stream, copy(to, from, bytes))
    })
}

/// Copies from one device to another, in the order of a stream of the current device.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemcpyPeerAsync(
    to: u64,
    to_context: u64,
    from: u64,
    from_context: u64,
    bytes: usize,
    stream: u64,
) -> i32 {
    answer(|| {
        let (mut machine, device) = current()?;
        machine.device_of_context(to_context)?;
        machine.device_of_context(from_context)?;
        let stream = machine.streams.find(stream, device)?;
        machine.check_device(to, bytes)?;
        machine.check_device(from, bytes)?;
        machine.streams.give(stream, copy(to, from, bytes))
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemsetD8Async(to: u64, byte: c_uchar, bytes: usize, stream: u64) -> i32 {
    answer(|| set(to, byte, bytes, stream))
}

fn set(to: u64, byte: u8, bytes: usize, stream: u64) -> Result<()> {
    let (mut machine, device) = current()?;
    let stream = machine.streams.find(stream, device)?;
    machine.check_device(to, bytes)?;
    let work: Work = Box::new(move || {
        // SAFETY: checked to be memory that was handed out, which waits for work when it is given back.
        unsafe { std::ptr::write_bytes(at_mut::<u8>(to as usize), byte, bytes) };
        Ok(())
    });
    machine.streams.give(stream, work)
}
