//! Device memory, host memory, and copies between them.
#![expect(unsafe_code, reason = "functions that C calls")]

use std::ffi::{c_uchar, c_uint, c_void};
use std::ptr::{with_exposed_provenance as at, with_exposed_provenance_mut as at_mut};

use crate::failure::{Code, answer, fail, put};
use crate::functions::{Out, functions};
use crate::machine::{current, machine};
use crate::streams::Work;

fn copy(to: u64, from: u64, bytes: usize) -> Work {
    Box::new(move || {
        // SAFETY: both were checked to be memory that was handed out, which waits for work when it is given back, or
        // are the caller's until the stream has been waited for.
        unsafe { std::ptr::copy(at::<u8>(from as usize), at_mut::<u8>(to as usize), bytes) };
        Ok(())
    })
}

functions! {
    fn cuMemGetInfo_v2(free: Out<'_, usize>, total: Out<'_, usize>) {
        let (machine, device) = current()?;
        put(free, machine.budget.free(device) as usize)?;
        put(total, machine.budget.total() as usize)
    }

    fn cuMemAlloc_v2(address: Out<'_, u64>, bytes: usize) {
        let (mut guard, device) = current()?;
        let machine = &mut *guard;
        machine.streams.check(device)?;
        let block = machine.blocks.reserve(&mut machine.budget, device, bytes)?;
        put(address, block as u64)
    }

    fn cuMemFree_v2(address: u64) {
        let mut guard = machine()?;
        let machine = &mut *guard;
        if address == 0 {
            return Ok(());
        }
        let device = machine.blocks.device_of(address as usize)?;
        machine.streams.drain_device(device)?;
        machine.blocks.release(&mut machine.budget, address as usize);
        Ok(())
    }

    fn cuMemHostAlloc(address: Out<'_, *mut c_void>, bytes: usize, _flags: c_uint) {
        let (mut machine, device) = current()?;
        machine.streams.check(device)?;
        let block = machine.pinned.reserve_pinned(device, bytes)?;
        put(address, at_mut(block))
    }

    fn cuMemFreeHost(address: *mut c_void) {
        let mut guard = machine()?;
        let machine = &mut *guard;
        machine.pinned.device_of(address.addr())?;
        machine.streams.drain_all()?;
        machine.pinned.release(&mut machine.budget, address.addr());
        Ok(())
    }

    /// Copies from pinned memory in stream order; from other host memory before this returns.
    fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: u64) {
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
    }

    /// Copies to pinned memory in stream order; to other host memory before this returns.
    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: u64) {
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
    }

    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: u64) {
        let (mut machine, device) = current()?;
        let stream = machine.streams.find(stream, device)?;
        machine.check_device(to, bytes)?;
        machine.check_device(from, bytes)?;
        machine.streams.give(stream, copy(to, from, bytes))
    }

    /// Copies from one device to another, in the order of a stream of the current device.
    fn cuMemcpyPeerAsync(to: u64, to_context: u64, from: u64, from_context: u64, bytes: usize, stream: u64) {
        let (mut machine, device) = current()?;
        machine.device_of_context(to_context)?;
        machine.device_of_context(from_context)?;
        let stream = machine.streams.find(stream, device)?;
        machine.check_device(to, bytes)?;
        machine.check_device(from, bytes)?;
        machine.streams.give(stream, copy(to, from, bytes))
    }

    fn cuMemsetD8Async(to: u64, byte: c_uchar, bytes: usize, stream: u64) {
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
}
