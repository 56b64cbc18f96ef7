//! Faults: what kernels find wrong in the numbers that they are given, and tell the host.
//!
//! A kernel cannot return an error. It writes what it found into memory of the host that the device sees, where the host
//! looks when it waits for the device.
#![expect(unsafe_code, reason = "memory that device and host share")]

use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::{AtomicI64, Ordering};

use cudarc::driver::{result, sys};

use super::Gpu;
use super::handles::Handle;
use crate::error::{Result, ToResult};

/// An index that lies outside of its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Fault {
    /// 0 for none, 1 once all of it is told, 2 while it is being told.
    is_set: i64,
    /// The index.
    pub index: i64,
    /// How many rows the table has.
    pub size: i64,
}

/// Where a device's kernels tell of faults.
#[derive(Debug)]
pub(super) struct Faults {
    place: Handle<Fault>,
}

impl Faults {
    /// For the device whose context is current.
    pub(super) fn new() -> Result<Self> {
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: gives an address that nobody else has.
        let place = unsafe { result::malloc_host(size_of::<Fault>(), flags) }.told("cuMemHostAlloc")?.cast::<Fault>();
        place.expose_provenance();
        // SAFETY: the place is new, large enough and aligned for anything.
        unsafe { ptr::write_volatile(place, Fault { is_set: 0, index: 0, size: 0 }) };
        Ok(Self { place: Handle(place) })
    }
}

impl Drop for Faults {
    fn drop(&mut self) {
        // SAFETY: made by `new`; no kernel runs any more.
        let _ = unsafe { result::free_host(self.place.0.cast()) };
    }
}

impl Gpu {
    /// Where kernels write faults: under unified addressing, the same for host and device.
    pub fn fault_address(&self) -> u64 {
        self.faults.place.0.addr() as u64
    }

    /// The first fault since this was last asked. What is still under way may find others.
    pub fn take_fault(&self) -> Option<Fault> {
        let place = self.faults.place.0;
        // SAFETY: the place is alive, aligned for whole numbers, and nobody but devices writes there meanwhile.
        let is_set = unsafe { AtomicI64::from_ptr(place.byte_add(offset_of!(Fault, is_set)).cast()) };
        // The device sets this last, so what is read after it belongs to it.
        if is_set.load(Ordering::Acquire) != 1 {
            return None;
        }
        // SAFETY: as above; any bytes are whole numbers.
        let fault = unsafe { ptr::read_volatile(place) };
        is_set.store(0, Ordering::Release);
        Some(fault)
    }
}
