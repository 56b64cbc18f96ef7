//! NVML, which programs open as `libnvidia-ml.so.1`. The devices have no links and no processes.
//!
//! PyTorch calls NVML for the message of an out-of-memory error, and for links between devices. It cannot count devices
//! with it and queries the runtime instead, since `CUDA_VISIBLE_DEVICES` names devices of another machine.
#![cfg_attr(not(test), expect(unsafe_code, reason = "exports functions under NVIDIA's names"))]

use std::ffi::{c_char, c_int};

use crate::abi::{CUDA_VERSION, Out, Status, answer, functions, give, new_handle, succeeds};

/// `NVML_ERROR_NOT_SUPPORTED`.
const NOT_SUPPORTED: Status = 3;

// If nothing is written, PyTorch treats the fabric as unsupported; an error would cause a warning.
succeeds! { nvmlInit nvmlInit_v2 nvmlShutdown nvmlDeviceGetGpuFabricInfoV }

functions! {
    fn nvmlDeviceGetHandleByIndex_v2(_index: u32, device: Out<'_, usize>) { give(device, new_handle()); 0 }
    fn nvmlDeviceGetHandleByPciBusId_v2(_id: *const c_char, device: Out<'_, usize>) { give(device, new_handle()); 0 }
    fn nvmlDeviceGetComputeRunningProcesses(_device: usize, count: Out<'_, u32>) { give(count, 0); 0 }
    fn nvmlSystemGetCudaDriverVersion_v2(version: Out<'_, c_int>) { give(version, CUDA_VERSION); 0 }
    fn nvmlDeviceGetNvLinkRemoteDeviceType() { NOT_SUPPORTED }
    fn nvmlDeviceGetNvLinkRemotePciInfo_v2() { NOT_SUPPORTED }
}
