//! Pinned, registered and managed host memory, which is actually allocated.
#![expect(unsafe_code, reason = "allocates memory, and exports functions under NVIDIA's names")]

use std::ffi::c_void;

use super::{Kind, Range, memory};
use crate::abi::{OUT_OF_MEMORY, Out, Status, answer, functions, give, succeeds};
use crate::devices::current;

/// Size of the host's pages, to which memory is aligned.
const PAGE_BYTES: usize = 4096;

fn allocate(address: Out<'_, usize>, bytes: usize, kind: Kind) -> Result<(), Status> {
    let mut start: *mut c_void = std::ptr::null_mut();
    // SAFETY: writes to a local variable; the alignment is a power of two.
    let failed = unsafe { libc::posix_memalign(&raw mut start, PAGE_BYTES, bytes.max(1)) };
    if failed != 0 {
        return Err(OUT_OF_MEMORY);
    }
    add(start.addr(), bytes.max(1), kind);
    give(address, start.expose_provenance());
    Ok(())
}

fn add(start: usize, bytes: usize, kind: Kind) {
    memory().ranges.insert(start, Range { kind, start, bytes, device: current() });
}

pub(super) fn free(address: usize, kind: Kind) -> Result<(), Status> {
    if address != 0 {
        memory().remove(address, kind)?;
        // SAFETY: the range was allocated by `allocate`, and is no longer known.
        unsafe { libc::free(std::ptr::with_exposed_provenance_mut(address)) };
    }
    Ok(())
}

functions! {
    fn cudaHostAlloc, cudaMallocHost, cuMemHostAlloc(address: Out<'_, usize>, bytes: usize) {
        allocate(address, bytes, Kind::Pinned)
    }
    fn cudaFreeHost, cuMemFreeHost(address: usize) { free(address, Kind::Pinned) }

    /// Allocates managed memory on the host, where host and device may write to it. Does not count as device memory.
    fn cudaMallocManaged, cuMemAllocManaged(address: Out<'_, usize>, bytes: usize) {
        allocate(address, bytes, Kind::Managed)
    }

    fn cudaHostRegister(address: usize, bytes: usize) { add(address, bytes, Kind::Pinned) }
    fn cudaHostUnregister(address: usize) { memory().remove(address, Kind::Pinned) }
    fn cudaHostGetDevicePointer(on_device: Out<'_, usize>, address: usize) { give(on_device, address) }
}

succeeds! { cudaMemPrefetchAsync cudaMemAdvise cuMemPrefetchAsync cuMemAdvise }
