//! Looks up functions of the driver by their documented names, as CUDA's runtime does.
#![expect(unsafe_code, reason = "functions that C calls")]

use std::ffi::{CStr, c_char, c_int, c_ulonglong, c_void};

use super::{arrays, devices, memory, pages, pools, streams};
use crate::failure::{Code, Result, answer, fail, put};
use crate::functions::{Out, functions};

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
const PER_THREAD: c_ulonglong = 2;

/// Returns the function with this name in a CUDA version; `None` if the stand-in does not define it.
fn meant(short: &str, version: c_int, is_per_thread: bool) -> Option<*mut c_void> {
    macro_rules! first {
        ($($name:literal $since:literal => $($function:ident)::+,)+) => {
            match short {
                $($name if version >= $since => Some($($function)::+ as *mut c_void),)+
                _ => None,
            }
        };
    }
    let of_thread = first! {
        "cuMemAllocAsync" 11020 => pools::cuMemAllocAsync_ptsz,
        "cuMemAllocFromPoolAsync" 11020 => pools::cuMemAllocFromPoolAsync_ptsz,
        "cuMemFreeAsync" 11020 => pools::cuMemFreeAsync_ptsz,
    };
    let of_all = first! {
        "cuInit" 2000 => devices::cuInit,
        "cuDeviceGet" 2000 => devices::cuDeviceGet,
        "cuDevicePrimaryCtxRetain" 7000 => devices::cuDevicePrimaryCtxRetain,
        "cuDevicePrimaryCtxRelease" 11000 => devices::cuDevicePrimaryCtxRelease_v2,
        "cuDevicePrimaryCtxReset" 11000 => devices::cuDevicePrimaryCtxReset_v2,
        "cuDeviceGetDefaultMemPool" 11020 => pools::cuDeviceGetDefaultMemPool,
        "cuCtxSetCurrent" 4000 => devices::cuCtxSetCurrent,
        "cuStreamCreate" 2000 => streams::cuStreamCreate,
        "cuStreamBeginCapture" 10010 => streams::cuStreamBeginCapture_v2,
        "cuStreamEndCapture" 10000 => streams::cuStreamEndCapture,
        "cuMemAlloc" 3020 => memory::cuMemAlloc_v2,
        "cuMemAllocPitch" 3020 => pools::cuMemAllocPitch_v2,
        "cuMemAllocManaged" 6000 => pools::cuMemAllocManaged,
        "cuMemAllocAsync" 11020 => pools::cuMemAllocAsync,
        "cuMemAllocFromPoolAsync" 11020 => pools::cuMemAllocFromPoolAsync,
        "cuMemFree" 3020 => memory::cuMemFree_v2,
        "cuMemFreeAsync" 11020 => pools::cuMemFreeAsync,
        "cuMemAllocHost" 3020 => pools::cuMemAllocHost_v2,
        "cuMemHostAlloc" 2020 => memory::cuMemHostAlloc,
        "cuMemFreeHost" 2000 => memory::cuMemFreeHost,
        "cuMemAddressReserve" 10020 => pages::cuMemAddressReserve,
        "cuMemAddressFree" 10020 => pages::cuMemAddressFree,
        "cuMemCreate" 10020 => pages::cuMemCreate,
        "cuMemRelease" 10020 => pages::cuMemRelease,
        "cuMemMap" 10020 => pages::cuMemMap,
        "cuMemUnmap" 10020 => pages::cuMemUnmap,
        "cuMemRetainAllocationHandle" 11000 => pages::cuMemRetainAllocationHandle,
        "cuArrayCreate" 3020 => arrays::cuArrayCreate_v2,
        "cuArray3DCreate" 3020 => arrays::cuArray3DCreate_v2,
        "cuArrayDestroy" 2000 => arrays::cuArrayDestroy,
        "cuMipmappedArrayCreate" 5000 => arrays::cuMipmappedArrayCreate,
        "cuMipmappedArrayDestroy" 5000 => arrays::cuMipmappedArrayDestroy,
        "cuGetProcAddress" 12000 => cuGetProcAddress_v2,
        "cuGetProcAddress" 11030 => cuGetProcAddress,
    };
    of_thread.filter(|_| is_per_thread).or(of_all)
}

/// Finds a function, and writes its address for the caller.
fn find(symbol: *const c_char, place: Out<'_, *mut c_void>, version: c_int, flags: c_ulonglong) -> Result<()> {
    if symbol.is_null() {
        return fail(Code::InvalidValue, "a function without a name");
    }
    // SAFETY: C's text, which ends in a zero.
    let short = unsafe { CStr::from_ptr(symbol) }.to_str().unwrap_or_default();
    let found = meant(short, version, flags & PER_THREAD != 0);
    put(place, found.unwrap_or(std::ptr::null_mut()))?;
    if found.is_some() { Ok(()) } else { fail(Code::NotFound, format!("the stand-in has no {short} of {version}")) }
}

functions! {
    fn cuGetProcAddress(symbol: *const c_char, place: Out<'_, *mut c_void>, version: c_int, flags: c_ulonglong) {
        find(symbol, place, version, flags)
    }

    fn cuGetProcAddress_v2(
        symbol: *const c_char,
        place: Out<'_, *mut c_void>,
        version: c_int,
        flags: c_ulonglong,
        status: Out<'_, c_int>,
    ) {
        let found = find(symbol, place, version, flags);
        if let Some(status) = status {
            // 1 stands for a name that is not known.
            status.write(c_int::from(found.is_err()));
        }
        found
    }
}
