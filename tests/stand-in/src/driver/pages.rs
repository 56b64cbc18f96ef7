//! The driver's virtual memory management.
#![cfg_attr(not(test), expect(unsafe_code, reason = "functions that C calls"))]

use std::ffi::{c_int, c_uint, c_ulonglong};

use crate::failure::{Code, Result, answer, fail, put};
use crate::functions::{Out, functions};
use crate::machine::{Machine, current, machine};
use crate::pages::GRANULARITY;

/// The location of memory: `CUmemLocation`, as it was before CUDA 13.2.
#[repr(C)]
pub(crate) struct Location {
    kind: c_uint,
    id: c_int,
}

/// The properties of requested memory: the beginning of `CUmemAllocationProp`.
#[repr(C)]
pub(crate) struct Properties {
    kind: c_uint,
    handle_kinds: c_uint,
    location: Location,
}

/// Access rights of a device to memory: `CUmemAccessDesc`.
#[repr(C)]
pub(crate) struct Access {
    location: Location,
    flags: c_uint,
}

const ON_DEVICE: c_uint = 1;
const PINNED: c_uint = 1;
const READ_AND_WRITE: c_uint = 3;

/// Returns the device of which memory is requested.
fn device_of(machine: &Machine, properties: Option<&Properties>) -> Result<usize> {
    match properties {
        Some(asked) if asked.kind == PINNED && asked.location.kind == ON_DEVICE => machine.device(asked.location.id),
        _ => fail(Code::InvalidValue, "memory of another kind than a device's own"),
    }
}

functions! {
    fn cuMemGetAllocationGranularity(granularity: Out<'_, usize>, properties: Option<&Properties>, _option: c_uint) {
        device_of(&*machine()?, properties)?;
        put(granularity, GRANULARITY)
    }

    fn cuMemAddressReserve(address: Out<'_, u64>, bytes: usize, alignment: usize, _wish: u64, _flags: c_ulonglong) {
        put(address, machine()?.pages.reserve(bytes, alignment)? as u64)
    }

    fn cuMemAddressFree(address: u64, bytes: usize) { machine()?.pages.release_addresses(address as usize, bytes) }

    fn cuMemCreate(handle: Out<'_, c_ulonglong>, bytes: usize, properties: Option<&Properties>, _flags: c_ulonglong) {
        let mut guard = machine()?;
        let machine = &mut *guard;
        let device = device_of(machine, properties)?;
        put(handle, machine.pages.create(&mut machine.budget, device, bytes)?)
    }

    fn cuMemRelease(handle: c_ulonglong) {
        let mut guard = machine()?;
        let machine = &mut *guard;
        machine.pages.release(&mut machine.budget, handle)
    }

    fn cuMemRetainAllocationHandle(handle: Out<'_, c_ulonglong>, address: u64) {
        put(handle, machine()?.pages.retain(address as usize)?)
    }

    fn cuMemMap(address: u64, bytes: usize, offset: usize, handle: c_ulonglong, _flags: c_ulonglong) {
        machine()?.pages.map(address as usize, bytes, offset, handle)
    }

    fn cuMemUnmap(address: u64, bytes: usize) {
        let mut guard = machine()?;
        let machine = &mut *guard;
        if let Some(device) = machine.pages.device_of(address as usize) {
            machine.streams.drain_device(device)?;
        }
        machine.pages.unmap(&mut machine.budget, address as usize, bytes)
    }

    fn cuMemSetAccess(address: u64, bytes: usize, access: Option<&Access>, count: usize) {
        let (mut machine, device) = current()?;
        match access {
            Some(asked)
                if count == 1
                    && asked.flags == READ_AND_WRITE
                    && asked.location.kind == ON_DEVICE
                    && machine.device(asked.location.id)? == device =>
            {
                machine.pages.allow(address as usize, bytes)
            }
            _ => fail(Code::InvalidValue, "the stand-in allows the current device all, and nobody else anything"),
        }
    }
}
