//! The number of simulated devices, and the current device of each thread.
#![cfg_attr(not(test), expect(unsafe_code, reason = "exports functions under NVIDIA's names"))]

use std::cell::Cell;
use std::ffi::c_int;

use crate::abi::{
    CUDA_VERSION, INVALID_DEVICE, NO_DEVICE, Out, SUCCESS, Status, answer, functions, give, new_handle, refuses,
    succeeds,
};
use crate::notes::{Kind, note};
use crate::settings::settings;

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

pub(crate) fn current() -> usize {
    CURRENT.get()
}

/// Returns `device` as an index if such a device exists.
pub(crate) fn checked(device: c_int) -> Result<usize, Status> {
    usize::try_from(device).ok().filter(|device| *device < settings().devices).ok_or(INVALID_DEVICE)
}

fn answer_if_any(out: Out<'_, c_int>, value: usize) -> Status {
    give(out, value as c_int);
    if settings().devices == 0 { NO_DEVICE } else { SUCCESS }
}

functions! {
    fn cudaGetDeviceCount(count: Out<'_, c_int>) { answer_if_any(count, settings().devices) }
    fn cudaGetDevice(device: Out<'_, c_int>) { answer_if_any(device, current()) }
    fn cudaSetDevice(device: c_int) {
        if checked(device).is_err() { note(Kind::MissingDevice, &device.to_string()); }
        checked(device).map(|device| CURRENT.set(device))
    }
    fn cudaInitDevice(device: c_int) { checked(device) }

    fn cuDeviceGet(device: Out<'_, c_int>, ordinal: c_int) { checked(ordinal).map(|_| give(device, ordinal)) }
    fn cuDeviceGetCount(count: Out<'_, c_int>) { give(count, settings().devices as c_int) }

    /// Reports a context as active, since every device has a context from the start of the program.
    fn cuDevicePrimaryCtxGetState(device: c_int, flags: Out<'_, u32>, is_active: Out<'_, c_int>) {
        checked(device).map(|_| {
            give(flags, 0);
            give(is_active, 1);
        })
    }
    fn cuDevicePrimaryCtxRetain(context: Out<'_, usize>, device: c_int) {
        checked(device).map(|device| give(context, device + 1))
    }
    fn cuCtxGetCurrent, cuCtxPopCurrent, cuCtxPopCurrent_v2(context: Out<'_, usize>) { give(context, current() + 1) }
    fn cuCtxGetDevice(device: Out<'_, c_int>) { give(device, current() as c_int) }
    fn cuCtxSetCurrent, cuCtxPushCurrent, cuCtxPushCurrent_v2(context: usize) {
        if context > 0 { CURRENT.set((context - 1).min(settings().devices.saturating_sub(1))); }
    }
    fn cuStreamGetCtx(_stream: usize, context: Out<'_, usize>) { cuCtxGetCurrent(context) }
    fn cuCtxGetApiVersion(_context: usize, version: Out<'_, u32>) { give(version, CUDA_VERSION as u32) }

    fn cudaDeviceCanAccessPeer(can: Out<'_, c_int>) { give(can, 0) }
    fn cudaDriverGetVersion, cudaRuntimeGetVersion, cuDriverGetVersion(version: Out<'_, c_int>) {
        give(version, CUDA_VERSION);
    }
    fn cudaDeviceGetLimit, cuCtxGetLimit(value: Out<'_, usize>) { give(value, 0) }

    /// Creates a context for part of a device. The context is only a handle, since no kernels are executed.
    fn cuCtxCreate_v4(context: Out<'_, usize>) { give(context, new_handle()) }
}

// Functions return their errors at once: no kernel fails later.
succeeds! {
    cuInit cuCtxSetLimit cuCtxSynchronize cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxSetFlags_v2
    cuLogsRegisterCallback cuLogsUnregisterCallback
    cudaDeviceSynchronize cudaDeviceReset cudaDeviceSetLimit cudaDeviceSetCacheConfig cudaSetDeviceFlags
    cudaGetLastError cudaPeekAtLastError cudaProfilerStart cudaProfilerStop
}

// Access between devices, and parts of a device.
refuses! {
    cudaDeviceEnablePeerAccess cudaDeviceDisablePeerAccess
    cuCtxFromGreenCtx cuGreenCtxCreate cuGreenCtxDestroy cuGreenCtxStreamCreate cuDeviceGetDevResource
    cuDevResourceGenerateDesc cuDevSmResourceSplitByCount cuDevSmResourceSplit cuCtxCreate_v3
}
