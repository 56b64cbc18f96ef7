//! The driver's virtual memory management.
#![expect(unsafe_code, reason = "functions that C calls")]

use std::ffi::{c_int, c_uint, c_ulonglong};

use super::put;
use crate::failure::{Code, Result, answer, fail};
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
///
/// # Safety
/// `properties` is null or can be read.
unsafe fn device_of(machine: &Machine, properties: *const Properties) -> Result<usize> {
    // SAFETY: as promised by the caller.
    match unsafe { properties.as_ref() } {
        Some(asked) if asked.kind == PINNED && asked.location.kind == ON_DEVICE => machine.device(asked.location.id),
        _ => fail(Code::InvalidValue, "memory of another kind than a device's own"),
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemGetAllocationGranularity(
    granularity: *mut usize,
    properties: *const Properties,
    _option: c_uint,
) -> i32 {
    answer(|| {
        // SAFETY: the caller's properties.
        unsafe { device_of(&*machine()?, properties) }?;
        // SAFETY: the caller's place.
        unsafe { put(granularity, GRANULARITY) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemAddressReserve(
    address: *mut u64,
    bytes: usize,
    alignment: usize,
    _wish: u64,
    _flags: c_ulonglong,
) -> i32 {
    answer(|| {
        let start = machine()?.pages.reserve(bytes, alignment)?;
        // SAFETY: the caller's place.
        unsafe { put(address, start as u64) }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemAddressFree(address: u64, bytes: usize) -> i32 {
    answer(|| machine()?.pages.release_addresses(address as usize, bytes))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemCreate(
    handle: *mut c_ulonglong,
    bytes: usize,
    properties: *const Properties,
    _flags: c_ulonglong,
) -> i32 {
    answer(|| {
        let mut guard = machine()?;
        let machine = &mut *guard;
        // SAFETY: the caller's properties.
        let device = unsafe { device_of(machine, properties) }?;
        let memory = machine.pages.create(&mut machine.budget, device, bytes)?;
        // SAFETY: the caller's place.
        unsafe { put(handle, memory) }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemRelease(handle: c_ulonglong) -> i32 {
    answer(|| {
        let mut guard = machine()?;
        let machine = &mut *guard;
        machine.pages.release(&mut machine.budget, handle)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemRetainAllocationHandle(handle: *mut c_ulonglong, address: u64) -> i32 {
    answer(|| {
        let found = machine()?.pages.retain(address as usize)?;
        // SAFETY: the caller's place.
        unsafe { put(handle, found) }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemMap(
    address: u64,
    bytes: usize,
    offset: usize,
    handle: c_ulonglong,
    _flags: c_ulonglong,
) -> i32 {
    answer(|| machine()?.pages.map(address as usize, bytes, offset, handle))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemUnmap(address: u64, bytes: usize) -> i32 {
    answer(|| {
        let mut guard = machine()?;
        let machine = &mut *guard;
        if let Some(device) = machine.pages.device_of(address as usize) {
            machine.streams.drain_device(device)?;
        }
        machine.pages.unmap(&mut machine.budget, address as usize, bytes)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemSetAccess(address: u64, bytes: usize, access: *const Access, count: usize) -> i32 {
    answer(|| {
        let (mut machine, device) = current()?;
        // SAFETY: the caller's descriptions, `count` of them.
        let asked = unsafe { access.as_ref() }.filter(|_| count == 1);
        match asked {
            Some(asked)
                if asked.flags == READ_AND_WRITE
                    && asked.location.kind == ON_DEVICE
                    && machine.device(asked.location.id)? == device =>
            {
                machine.pages.allow(address as usize, bytes)
            }
            _ => fail(Code::InvalidValue, "the stand-in allows the current device all, and nobody else anything"),
        }
    })
}
