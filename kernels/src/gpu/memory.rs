//! Device and pinned host memory, and copies between host and devices.
#![expect(unsafe_code, reason = "asks the driver for memory and copies to and from it")]

use std::ptr;

use cudarc::driver::{result, sys};

use super::Gpu;
use crate::error::{Result, ToResult};

/// Memory of the whole device in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Total memory.
    pub total_bytes: u64,
    /// Free memory.
    pub free_bytes: u64,
}

impl Gpu {
    /// Returns the total and free memory of the device, including the use of other processes.
    ///
    /// # Errors
    /// Fails if the driver call fails.
    pub fn memory(&self) -> Result<DeviceMemory> {
        self.bind()?;
        let (free, total) = result::mem_get_info().context("cuMemGetInfo")?;
        Ok(DeviceMemory { total_bytes: total as u64, free_bytes: free as u64 })
    }

    /// Reserves memory. The address of its first byte is a multiple of 512.
    ///
    /// # Errors
    /// Returns [`Error::OutOfMemory`](crate::Error::OutOfMemory) if there is not enough free memory, and other errors
    /// if the driver fails.
    pub fn reserve(&self, bytes: u64) -> Result<u64> {
        self.bind()?;
        // SAFETY: returns an address that is not in use.
        unsafe { result::malloc_sync(bytes as usize) }.context("cuMemAlloc")
    }

    /// Releases memory from [`reserve`](Self::reserve), after waiting for work that uses it.
    ///
    /// # Errors
    /// Fails if the driver call fails.
    ///
    /// # Safety
    /// The address must come from `reserve`, and must not be used again.
    pub unsafe fn release(&self, address: u64) -> Result<()> {
        self.bind()?;
        // SAFETY: guaranteed by the caller.
        unsafe { result::free_sync(address) }.context("cuMemFree")
    }

    /// Reserves pinned host memory, which the device can access directly.
    ///
    /// # Errors
    /// Fails if the driver call fails.
    pub fn reserve_pinned(&self, bytes: u64) -> Result<u64> {
        self.bind()?;
        // Portable to all contexts, since another device may copy from it as well.
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE;
        // SAFETY: returns an address that is not in use.
        let address = unsafe { result::malloc_host(bytes as usize, flags) }.context("cuMemHostAlloc")?;
        Ok(address.expose_provenance() as u64)
    }

    /// Releases memory from [`reserve_pinned`](Self::reserve_pinned).
    ///
    /// # Errors
    /// Fails if the driver call fails.
    ///
    /// # Safety
    /// The address must come from `reserve_pinned`, and must not be used again, including by copies in progress.
    pub unsafe fn release_pinned(&self, address: u64) -> Result<()> {
        self.bind()?;
        let pointer = ptr::with_exposed_provenance_mut(address as usize);
        // SAFETY: guaranteed by the caller.
        unsafe { result::free_host(pointer) }.context("cuMemFreeHost")
    }

    /// Copies `from` to the device in the order of `stream`, and returns once `from` may be changed.
    ///
    /// # Errors
    /// Fails if a driver call fails.
    ///
    /// # Safety
    /// The caller must be allowed to write `from.len()` bytes at `to` at this point of `stream`.
    pub unsafe fn copy_in(&self, to: u64, from: &[u8], stream: u64) -> Result<()> {
        if from.is_empty() {
            return Ok(());
        }
        self.bind()?;
        let handle = self.streams.handle(stream);
        // SAFETY: guaranteed by the caller; `from` is live until the stream has been synchronized.
        unsafe { result::memcpy_htod_async(to, from, handle) }.context("cuMemcpyHtoDAsync")?;
        self.synchronize(stream)
    }

    /// Submits a copy from pinned host memory to the device to `stream`, and returns immediately.
    ///
    /// # Errors
    /// Fails if a driver call fails.
    ///
    /// # Safety
    /// The caller must be allowed to write `bytes` bytes at `to` at this point of `stream`. The `bytes` bytes at `from`
    /// must be in memory from [`reserve_pinned`](Self::reserve_pinned), and stay there unchanged until `stream` is past
    /// the copy.
    pub unsafe fn copy_from_pinned(&self, to: u64, from: u64, bytes: u64, stream: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.bind()?;
        let handle = self.streams.handle(stream);
        let from = ptr::with_exposed_provenance(from as usize);
        // SAFETY: guaranteed by the caller.
        unsafe { sys::cuMemcpyHtoDAsync_v2(to, from, bytes as usize, handle) }.result().context("cuMemcpyHtoDAsync")
    }

    /// Enqueues an asynchronous copy of `bytes` bytes on `stream`, from this device to `other` (which may be the same
    /// GPU). The copy waits for work already submitted to `other_stream`; later work on `other_stream` waits for the
    /// copy.
    ///
    /// # Errors
    /// Returns an error if a driver call fails.
    ///
    /// # Safety
    /// The caller must be allowed to read `bytes` bytes at `from` at this point of `stream`, and to write as many at
    /// `to` at this point of `other_stream`.
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
        // SAFETY: guaranteed by the caller; both contexts are retained.
        unsafe { result::memcpy_peer_async(target, to, source, from, bytes as usize, handle) }
            .context("cuMemcpyPeerAsync")?;
        other.follow(other_stream, self, stream)
    }

    /// Copies from the device to `to` after all work submitted to `stream` so far, and waits for the copy.
    ///
    /// # Errors
    /// Fails if a driver call fails.
    ///
    /// # Safety
    /// The caller must be allowed to read `to.len()` bytes at `from` at this point of `stream`.
    pub unsafe fn copy_out(&self, to: &mut [u8], from: u64, stream: u64) -> Result<()> {
        if to.is_empty() {
            return Ok(());
        }
        self.bind()?;
        let handle = self.streams.handle(stream);
        // SAFETY: guaranteed by the caller; `to` is borrowed until the stream has been synchronized.
        unsafe { result::memcpy_dtoh_async(to, from, handle) }.context("cuMemcpyDtoHAsync")?;
        self.synchronize(stream)
    }
}
