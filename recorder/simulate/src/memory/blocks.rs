//! Blocks of device memory, from `cudaMalloc` and from memory pools. PyTorch's caching allocator allocates its segments
//! here, or in [pages](super::pages).
#![expect(unsafe_code, reason = "exports functions under NVIDIA's names")]

use std::ffi::c_int;

use super::{Kind, Range, memory};
use crate::abi::{INVALID_VALUE, NOT_SUPPORTED, Out, SUCCESS, Status, answer, functions, give, succeeds};
use crate::contents;
use crate::devices::{checked, current};
use crate::settings::settings;

pub(crate) fn allocate(address: Out<'_, usize>, bytes: usize) -> Result<(), Status> {
    let made = if bytes == 0 { Ok(0) } else { memory().allocate(current(), bytes) };
    give(address, made.unwrap_or(0));
    made.map(drop)
}

pub(crate) fn free(address: usize) -> Result<(), Status> {
    if address == 0 {
        return Ok(());
    }
    let freed = memory().free(address);
    match freed {
        Ok(range) => {
            contents::forget(range.start, range.bytes);
            Ok(())
        }
        // Managed memory is host memory.
        Err(_) => super::host::free(address, Kind::Managed),
    }
}

/// The fields of `cudaPointerAttributes`, which has additional reserved fields in CUDA 13.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct PointerAttributes {
    kind: c_int,
    device: c_int,
    device_address: usize,
    host_address: usize,
}

fn attributes(address: usize) -> PointerAttributes {
    match memory().range_of(address) {
        // -2: cudaInvalidDeviceId.
        None => PointerAttributes { kind: 0, device: -2, device_address: 0, host_address: address },
        Some(Range { kind, device, .. }) => PointerAttributes {
            kind: kind as c_int,
            device: device as c_int,
            device_address: address,
            host_address: if kind == Kind::Device { 0 } else { address },
        },
    }
}

functions! {
    // Also for the allocator backend cudaMallocAsync: work on a stream is complete at once, so a pool keeps nothing.
    fn cudaMalloc, cuMemAlloc_v2, cudaMallocAsync, cudaMallocFromPoolAsync(address: Out<'_, usize>, bytes: usize) {
        allocate(address, bytes)
    }
    fn cudaFree, cuMemFree_v2, cudaFreeAsync(address: usize) { free(address) }

    fn cudaDeviceGetDefaultMemPool, cudaDeviceGetMemPool(pool: Out<'_, usize>, device: c_int) {
        checked(device).map(|device| give(pool, device + 1))
    }
    fn cudaMemPoolCreate(pool: Out<'_, usize>) { give(pool, current() + 1) }

    /// Returns an attribute. Attributes up to 3 are ints that control reuse; the others are totals in bytes.
    fn cudaMemPoolGetAttribute(pool: usize, attribute: c_int, value: *mut u64) {
        let Ok(device) = checked(pool as c_int - 1) else { return INVALID_VALUE };
        if value.is_null() { return INVALID_VALUE; }
        if attribute > 3 {
            let used = memory().used_bytes[device];
            // SAFETY: of this attribute, the caller's variable has 8 bytes.
            unsafe { value.write_unaligned(used) };
        } else {
            // SAFETY: the caller's variable has 4 bytes.
            unsafe { value.cast::<c_int>().write_unaligned(0) };
        }
        SUCCESS
    }

    fn cudaMemGetInfo, cuMemGetInfo_v2(free: Out<'_, usize>, total: Out<'_, usize>) {
        give(free, memory().free_bytes(current()) as usize);
        give(total, settings().gpu.memory_bytes as usize);
    }

    fn cudaPointerGetAttributes(out: Out<'_, PointerAttributes>, address: usize) {
        give(out, attributes(address));
    }

    fn cuMemGetAddressRange, cuMemGetAddressRange_v2(start: Out<'_, usize>, bytes: Out<'_, usize>, address: usize) {
        match memory().range_of(address).filter(|range| range.kind == Kind::Device) {
            Some(range) => { give(start, range.start); give(bytes, range.bytes); SUCCESS }
            None => INVALID_VALUE,
        }
    }

    /// Returns the memory type for attribute 2, the device address (the same as on the host) for 3, and the device for
    /// 9.
    fn cuPointerGetAttribute(value: *mut usize, attribute: c_int, address: usize) {
        if value.is_null() { return INVALID_VALUE; }
        match attribute {
            // SAFETY: of this attribute, the caller's variable is an address.
            3 => unsafe { value.write_unaligned(address) },
            // SAFETY: of these attributes, the caller's variable is an int.
            2 | 9 => unsafe {
                let known = attributes(address);
                value.cast::<c_int>().write_unaligned(if attribute == 2 { known.kind } else { known.device });
            },
            _ => return NOT_SUPPORTED,
        }
        SUCCESS
    }
}

succeeds! { cudaMemPoolSetAttribute cudaMemPoolSetAccess cudaMemPoolTrimTo cudaMemPoolDestroy cudaDeviceSetMemPool }

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use super::*;
    use crate::abi::OUT_OF_MEMORY;

    fn allocated(bytes: usize) -> Result<usize, Status> {
        let mut address = MaybeUninit::new(0);
        let status = cudaMalloc(Some(&mut address), bytes);
        // SAFETY: initialized above.
        if status == SUCCESS { Ok(unsafe { address.assume_init() }) } else { Err(status) }
    }

    #[test]
    fn a_block_has_an_address_until_it_is_freed_and_what_does_not_fit_is_refused() {
        let address = allocated(5 << 20).unwrap();
        assert_eq!(attributes(address + (5 << 20)).kind, Kind::Device as c_int, "pages of 2 MiB");
        // Other tests may have the memory behind it.
        assert!(memory().range_of(address + (6 << 20)).is_none_or(|range| range.start != address));
        assert_eq!(free(address + 8), Err(INVALID_VALUE));
        // Under one lock, so that no other test gets the address in between.
        let mut all = memory();
        assert!(all.free(address).is_ok() && all.free(address).is_err());
        drop(all);
        assert_eq!(allocated(usize::MAX), Err(OUT_OF_MEMORY));
        assert_eq!(allocated(settings().gpu.memory_bytes as usize + 1), Err(OUT_OF_MEMORY));
        assert_eq!((allocated(0), free(0)), (Ok(0), Ok(())));
    }
}
