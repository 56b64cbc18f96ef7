//! Faults, which are errors in the input data that kernels detect and report to the host.
//!
//! A kernel cannot return an error. Instead it writes a fault into host memory that is mapped into the device. The host
//! checks for a fault when it waits for the device.
#![expect(unsafe_code, reason = "memory that device and host share")]

use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::{AtomicI64, Ordering};

use cudarc::driver::{result, sys};

use super::Gpu;
use super::handles::Handle;
use crate::error::{Result, ToResult};

/// An index outside its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Fault {
    /// 0 if there is no fault, 1 if it is completely written, and 2 while it is being written.
    is_set: i64,
    /// The index that a kernel was given.
    pub index: i64,
    /// The number of rows of the table.
    pub size: i64,
}

/// The memory to which a device's kernels report faults.
#[derive(Debug)]
pub(super) struct Faults {
    place: Handle<Fault>,
}

impl Faults {
    /// Allocates the memory for the device whose context is current.
    pub(super) fn new() -> Result<Self> {
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: returns an address that is not in use.
        let place =
            unsafe { result::malloc_host(size_of::<Fault>(), flags) }.context("cuMemHostAlloc")?.cast::<Fault>();
        place.expose_provenance();
        // SAFETY: the memory is new, large enough and aligned for any type.
        unsafe { ptr::write_volatile(place, Fault { is_set: 0, index: 0, size: 0 }) };
        Ok(Self { place: Handle(place) })
    }
}

impl Drop for Faults {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`; no kernel runs any more.
        let _ = unsafe { result::free_host(self.place.0.cast()) };
    }
}

impl Gpu {
    /// Returns the address where kernels write faults. With unified addressing, it is the same for host and device.
    pub fn fault_address(&self) -> u64 {
        self.faults.place.0.addr() as u64
    }

    /// Takes the first fault since the last call. Work in progress may still find other faults.
    pub fn take_fault(&self) -> Option<Fault> {
        let place = self.faults.place.0;
        // SAFETY: the memory is live and aligned for integers, and only devices write there in the meantime.
        let is_set = unsafe { AtomicI64::from_ptr(place.byte_add(offset_of!(Fault, is_set)).cast()) };
        // The device sets this last, so values read after it are complete.
        if is_set.load(Ordering::Acquire) != 1 {
            return None;
        }
        // SAFETY: as above; any bytes are valid integers.
        let fault = unsafe { ptr::read_volatile(place) };
        is_set.store(0, Ordering::Release);
        Some(fault)
    }
}
