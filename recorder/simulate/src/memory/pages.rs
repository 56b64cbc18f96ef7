//! Virtual memory management for expandable segments, whose addresses are reserved once and mapped later.
#![expect(unsafe_code, reason = "exports functions under NVIDIA's names")]

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

use super::memory;
use crate::abi::{INVALID_VALUE, IntoStatus, Out, SUCCESS, answer, functions, give, new_handle, refuses, succeeds};
use crate::addresses::PAGE_BYTES;
use crate::contents;
use crate::devices::{checked, current};

/// Allocated device memory that has no addresses, as device and bytes by handle.
static HANDLES: Mutex<BTreeMap<usize, (usize, usize)>> = Mutex::new(BTreeMap::new());

functions! {
    fn cuMemAddressReserve(start: Out<'_, usize>, bytes: usize, alignment: usize) {
        memory().add_device_range(current(), bytes, alignment).map(|address| give(start, address))
    }

    fn cuMemAddressFree(start: usize, bytes: usize) {
        contents::forget(start, bytes);
        memory().remove_device_range(start)
    }

    /// Creates physical memory. `properties` points to a `CUmemAllocationProp`, whose first fields are type, type of
    /// handle, type of location, and device.
    fn cuMemCreate(handle: Out<'_, usize>, bytes: usize, properties: Option<&[c_int; 4]>) {
        let Some(properties) = properties else { return INVALID_VALUE };
        let taken = checked(properties[3]).and_then(|device| memory().take(device, bytes).map(|_| device));
        let made = taken.map(|device| {
            let made = new_handle();
            HANDLES.lock().unwrap_or_else(PoisonError::into_inner).insert(made, (device, bytes));
            give(handle, made);
        });
        made.into_status()
    }

    /// Releases physical memory. PyTorch unmaps memory before it releases it, so mappings are not counted.
    fn cuMemRelease(handle: usize) {
        match HANDLES.lock().unwrap_or_else(PoisonError::into_inner).remove(&handle) {
            Some((device, bytes)) => { memory().give_back(device, bytes); SUCCESS }
            None => INVALID_VALUE,
        }
    }

    fn cuMemGetAllocationGranularity(bytes: Out<'_, usize>) { give(bytes, PAGE_BYTES) }
    fn cuMemUnmap(start: usize, bytes: usize) { contents::forget(start, bytes) }
}

succeeds! { cuMemMap cuMemSetAccess }

// Memory that is shared between processes or devices.
refuses! {
    cuMemExportToShareableHandle cuMemImportFromShareableHandle cuMemRetainAllocationHandle
    cuMemGetAllocationPropertiesFromHandle cuMulticastCreate cuMulticastAddDevice cuMulticastBindMem cuMulticastUnbind
    cuMulticastGetGranularity cudaIpcGetMemHandle cudaIpcOpenMemHandle cudaIpcCloseMemHandle
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use super::*;
    use crate::abi::{INVALID_DEVICE, OUT_OF_MEMORY};
    use crate::settings::settings;

    #[test]
    fn memory_counts_when_it_is_created_not_when_addresses_are_reserved() {
        let total = settings().gpu.memory_bytes as usize;
        let mut start = MaybeUninit::new(0);
        assert_eq!(cuMemAddressReserve(Some(&mut start), total / PAGE_BYTES * PAGE_BYTES * 2, 0), SUCCESS);
        let mut handle = MaybeUninit::new(0);
        assert_eq!(cuMemCreate(Some(&mut handle), PAGE_BYTES, Some(&[1, 0, 1, 0])), SUCCESS);
        assert_eq!(cuMemCreate(None, total, Some(&[1, 0, 1, 0])), OUT_OF_MEMORY);
        assert_eq!(cuMemCreate(None, PAGE_BYTES, Some(&[1, 0, 1, 7])), INVALID_DEVICE);
        // SAFETY: initialized above.
        let (start, handle) = unsafe { (start.assume_init(), handle.assume_init()) };
        assert_eq!((cuMemRelease(handle), cuMemRelease(handle)), (SUCCESS, INVALID_VALUE));
        assert_eq!((cuMemAddressFree(start, 0), cuMemAddressFree(start, 0)), (SUCCESS, INVALID_VALUE));
    }
}
