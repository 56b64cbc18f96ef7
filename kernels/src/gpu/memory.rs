//! Memory: what the driver hands out and takes back, and copies between it and the host's.
#![expect(unsafe_code, reason = "asks the driver for memory and copies to and from it")]

use std::ptr;

use cudarc::driver::{result, sys};

use super::Gpu;
use crate::error::{Result, ToResult};

/// Bytes of the whole device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// All.
    pub total_bytes: u64,
    /// Those that nobody uses.
    pub free_bytes: u64,
}

impl Gpu {
    /// What the device has, and what is free of it, whoever uses the rest.
    pub fn memory(&self) -> Result<DeviceMemory> {
        self.bind()?;
        let (free, total) = result::mem_get_info().told("cuMemGetInfo")?;
        Ok(DeviceMemory { total_bytes: total as u64, free_bytes: free as u64 })
    }

    /// Obtains memory; the address of its first byte is a multiple of 512.
    pub fn reserve(&self, bytes: u64) -> Result<u64> {
        self.bind()?;
        // SAFETY: gives an address that nobody else has.
        unsafe { result::malloc_sync(bytes as usize) }.told("cuMemAlloc")
    }

    /// Gives back what [`reserve`](Self::reserve) gave; waits for work that uses it.
    ///
    /// # Safety
    /// The address is one that `reserve` gave, and is not used again.
    pub unsafe fn release(&self, address: u64) -> Result<()> {
        self.bind()?;
        // SAFETY: as promised by the caller.
        unsafe { result::free_sync(address) }.told("cuMemFree")
    }

    /// Obtains memory of the host that the device copies from and to without a detour.
    pub fn reserve_pinned(&self, bytes: u64) -> Result<u64> {
        self.bind()?;
        // Known to all contexts, as another device may copy from it as well.
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE;
        // SAFETY: gives an address that nobody else has.
        let address = unsafe { result::malloc_host(bytes as usize, flags) }.told("cuMemHostAlloc")?;
        Ok(address.expose_provenance() as u64)
    }

    /// Gives back what [`reserve_pinned`](Self::reserve_pinned) gave.
    ///
    /// # Safety
    /// The address is one that `reserve_pinned` gave, and is not used again, not by copies under way either.
    pub unsafe fn release_pinned(&self, address: u64) -> Result<()> {
        self.bind()?;
        let pointer = ptr::with_exposed_provenance_mut(address as usize);
        // SAFETY: as promised by the caller.
        unsafe { result::free_host(pointer) }.told("cuMemFreeHost")
    }

    /// Copies `from` to the device in the order of `stream`, and returns once `from` may change.
    ///
    /// # Safety
    /// As many bytes from `to` on are the caller's to write at this point of `stream`.
    pub unsafe fn copy_in(&self, to: u64, from: &[u8], stream: u64) -> Result<()> {
        if from.is_empty() {
            return Ok(());
        }
        self.bind()?;
        let handle = self.streams.handle(stream);
        // SAFETY: as promised by the caller; `from` is alive until the stream has been waited for.
        unsafe { result::memcpy_htod_async(to, from, handle) }.told("cuMemcpyHtoDAsync")?;
        self.synchronize(stream)
    }

    /// Gives `stream` a copy to the device from pinned memory of the host, and returns at once.
    ///
    /// # Safety
    /// `bytes` bytes from `to` on are the caller's to write at this point of `stream`. As many from `from` on lie in memory
    /// that [`reserve_pinned`](Self::reserve_pinned) gave, and stay there unchanged until `stream` is past the copy.
    pub unsafe fn copy_from_pinned(&self, to: u64, from: u64, bytes: u64, stream: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.bind()?;
        let handle = self.streams.handle(stream);
        let from = ptr::with_exposed_provenance(from as usize);
        // SAFETY: as promised by the caller.
        unsafe { sys::cuMemcpyHtoDAsync_v2(to, from, bytes as usize, handle) }.result().told("cuMemcpyHtoDAsync")
    }

    /// Gives `stream` a copy from this device to `other`, perhaps of another GPU, and returns at once. The copy waits for
    /// what `other_stream` there has been given so far, and what that is given from now on waits for the copy.
    ///
    /// # Safety
    /// `bytes` bytes from `from` on are the caller's to read at this point of `stream`, and as many from `to` on the
    /// caller's to write at this point of `other_stream`.
    pub unsafe fn copy_across(
        &self,
        from: u64,
        stream: u64,
        (other, to): (&Self, u64),
        other_stream: u64,
        bytes: u64,
    ) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.follow(stream, other, other_stream)?;
        self.bind()?;
        let handle = self.streams.handle(stream);
        let (source, target) = (self.context.handle.0, other.context.handle.0);
        // SAFETY: as promised by the caller; both contexts are held.
        unsafe { result::memcpy_peer_async(target, to, source, from, bytes as usize, handle) }
            .told("cuMemcpyPeerAsync")?;
        other.follow(other_stream, self, stream)
    }

    /// Copies from the device to `to` after all that `stream` was given before, and returns when that is done.
    ///
    /// # Safety
    /// As many bytes from `from` on are the caller's to read at this point of `stream`.
    pub unsafe fn copy_out(&self, to: &mut [u8], from: u64, stream: u64) -> Result<()> {
        if to.is_empty() {
            return Ok(());
        }
        self.bind()?;
        let handle = self.streams.handle(stream);
        // SAFETY: as promised by the caller; `to` is borrowed until the stream has been waited for.
        unsafe { result::memcpy_dtoh_async(to, from, handle) }.told("cuMemcpyDtoHAsync")?;
        self.synchronize(stream)
    }
}
