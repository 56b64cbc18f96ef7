//! Virtual memory management: reserves addresses, and maps memory to them page by page.
#![expect(unsafe_code, reason = "calls the driver's virtual memory management")]

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys;

use super::Gpu;
use crate::error::{Result, ToResult};

#[derive(Debug)]
pub(super) struct Pages {
    properties: Properties,
    /// The granularity of addresses and pages in bytes, or 0 if the device does not support mapping.
    granularity: u64,
    mapped: Mutex<BTreeMap<u64, Page>>,
}

#[derive(Debug)]
struct Properties(sys::CUmemAllocationProp);

// SAFETY: plain numbers; the only pointer is null and never read.
unsafe impl Send for Properties {}
// SAFETY: as above.
unsafe impl Sync for Properties {}

#[derive(Clone, Copy, Debug)]
struct Page {
    memory: sys::CUmemGenericAllocationHandle,
    bytes: u64,
}

impl Pages {
    /// Queries the granularity of the device whose context is current.
    pub(super) fn new(ordinal: i32) -> Result<Self> {
        let properties = sys::CUmemAllocationProp {
            type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
            location: sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: ordinal },
            win32HandleMetaData: std::ptr::null_mut(),
            allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
                compressionType: 0,
                gpuDirectRDMACapable: 0,
                usage: 0,
                reserved: [0; 4],
            },
        };
        let mut granularity = 0_usize;
        let minimum = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
        // SAFETY: both pointers are valid. A device without virtual memory management returns an error.
        let asked = unsafe { sys::cuMemGetAllocationGranularity(&raw mut granularity, &raw const properties, minimum) };
        let granularity = if asked.result().is_ok() { granularity as u64 } else { 0 };
        Ok(Self { properties: Properties(properties), granularity, mapped: Mutex::default() })
    }

    fn mapped(&self) -> MutexGuard<'_, BTreeMap<u64, Page>> {
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gpu {
    /// Returns the granularity of addresses and pages in bytes; `None` without virtual memory management.
    pub fn page_bytes(&self) -> Option<u64> {
        (self.pages.granularity > 0).then_some(self.pages.granularity)
    }

    /// Reserves addresses without memory.
    ///
    /// # Errors
    /// Fails if the driver call fails.
    pub fn reserve_addresses(&self, bytes: u64) -> Result<u64> {
        self.bind()?;
        let mut address = 0;
        // SAFETY: the pointer is valid; returns addresses that are not in use.
        unsafe { sys::cuMemAddressReserve(&raw mut address, bytes as usize, 0, 0, 0) }
            .result()
            .context("cuMemAddressReserve")?;
        Ok(address)
    }

    /// Releases reserved addresses without mapped memory.
    ///
    /// # Errors
    /// Fails if the driver call fails.
    ///
    /// # Safety
    /// The addresses must be exactly the range from one call of [`reserve_addresses`](Self::reserve_addresses), and
    /// must not be used again.
    pub unsafe fn release_addresses(&self, address: u64, bytes: u64) -> Result<()> {
        self.bind()?;
        // SAFETY: guaranteed by the caller.
        unsafe { sys::cuMemAddressFree(address, bytes as usize) }.result().context("cuMemAddressFree")
    }

    /// Maps memory at reserved addresses, in pages of `page` bytes. If it fails, nothing is mapped.
    ///
    /// # Errors
    /// Fails if there is not enough free memory or a driver call fails.
    ///
    /// # Safety
    /// The addresses must be whole pages within one range of reserved addresses, with no memory mapped.
    pub unsafe fn map(&self, address: u64, bytes: u64, page: u64) -> Result<()> {
        self.bind()?;
        let mut done = 0;
        let outcome = loop {
            if done >= bytes {
                break self.allow(address, bytes);
            }
            if let Err(error) = self.map_page(address + done, page) {
                break Err(error);
            }
            done += page;
        };
        if outcome.is_err() && done > 0 {
            // SAFETY: just mapped, and not in use yet. An error here adds nothing to the previous one.
            let _ = unsafe { self.unmap(address, done) };
        }
        outcome
    }

    fn map_page(&self, address: u64, bytes: u64) -> Result<()> {
        let mut memory = 0;
        let properties = &raw const self.pages.properties.0;
        // SAFETY: both pointers are valid.
        unsafe { sys::cuMemCreate(&raw mut memory, bytes as usize, properties, 0) }.result().context("cuMemCreate")?;
        // SAFETY: the memory is new, and the caller of `map` guarantees that the addresses are free.
        let mapped = unsafe { sys::cuMemMap(address, bytes as usize, 0, memory, 0) }.result().context("cuMemMap");
        if mapped.is_err() {
            // SAFETY: it is not mapped.
            let _ = unsafe { sys::cuMemRelease(memory) }.result();
            return mapped;
        }
        self.pages.mapped().insert(address, Page { memory, bytes });
        Ok(())
    }

    fn allow(&self, address: u64, bytes: u64) -> Result<()> {
        let location = self.pages.properties.0.location;
        let access =
            sys::CUmemAccessDesc { location, flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
        // SAFETY: the whole range was just mapped.
        unsafe { sys::cuMemSetAccess(address, bytes as usize, &raw const access, 1) }.result().context("cuMemSetAccess")
    }

    /// Unmaps memory. The addresses stay reserved.
    ///
    /// # Errors
    /// Fails if a driver call fails.
    ///
    /// # Safety
    /// The addresses must be whole pages mapped by [`map`](Self::map) that are not in use, including by work in
    /// progress.
    pub unsafe fn unmap(&self, address: u64, bytes: u64) -> Result<()> {
        self.bind()?;
        let inside: Vec<(u64, Page)> =
            self.pages.mapped().range(address..address + bytes).map(|(&at, &page)| (at, page)).collect();
        for (at, page) in inside {
            // SAFETY: mapped by `map_page`, with this size.
            unsafe { sys::cuMemUnmap(at, page.bytes as usize) }.result().context("cuMemUnmap")?;
            self.pages.mapped().remove(&at);
            // SAFETY: created by `map_page`, and no longer mapped.
            unsafe { sys::cuMemRelease(page.memory) }.result().context("cuMemRelease")?;
        }
        Ok(())
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        for (&at, page) in &*self.mapped() {
            // SAFETY: mapped by `map_page`, and not in use, since the device has no users any more.
            let _ = unsafe { sys::cuMemUnmap(at, page.bytes as usize) }.result();
            // SAFETY: as above.
            let _ = unsafe { sys::cuMemRelease(page.memory) }.result();
        }
    }
}
