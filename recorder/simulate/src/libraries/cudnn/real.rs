//! The cuDNN library of the user's PyTorch, used for functions that need no device. Since version 9.8, it accepts the
//! description of a device that does not exist, for which its heuristics choose engines and workspaces.
//!
//! See cuDNN's documentation of `CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR`.
#![expect(unsafe_code, reason = "calls NVIDIA's library")]

use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::LazyLock;

use crate::abi::{CUDA_VERSION, SUCCESS, Status};
use crate::settings::settings;

type Create = unsafe extern "C" fn(c_int, *mut usize) -> Status;
type Set = unsafe extern "C" fn(usize, c_int, c_int, i64, *const c_void) -> Status;
type Get = unsafe extern "C" fn(usize, c_int, c_int, i64, *mut i64, *mut c_void) -> Status;
type One = unsafe extern "C" fn(usize) -> Status;

/// The functions for descriptors, and the described device.
pub(super) struct Backend {
    pub(super) create: Create,
    pub(super) set: Set,
    pub(super) get: Get,
    pub(super) finalize: One,
    pub(super) destroy: One,
    pub(super) device: usize,
}

const NAME: &CStr = c"libcudnn.so.9";

/// The version reported without cuDNN, which satisfies any PyTorch version.
const NEWEST: usize = 92_600;

/// The first version that accepts a described device.
const FIRST: usize = 90_800;

// Constants of cuDNN's headers.
const DEVICE_PROPERTIES: c_int = 38;
const JSON_REPRESENTATION: c_int = 2702;
const TYPE_CHAR: c_int = 24;

/// Returns a function of the library; null if the library is not loaded.
pub(super) fn function(name: &CStr) -> *mut c_void {
    // SAFETY: the name ends with a zero, and nothing is loaded.
    let library = unsafe { libc::dlopen(NAME.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    if library.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: the handle is the loader's; the name ends with a zero.
    unsafe { libc::dlsym(library, name.as_ptr()) }
}

/// Returns the version of the library; [`NEWEST`] if it is not loaded.
pub(super) fn version() -> usize {
    static VERSION: LazyLock<usize> = LazyLock::new(|| {
        let found = function(c"cudnnGetVersion");
        if found.is_null() {
            return NEWEST;
        }
        // SAFETY: the library's function of this name.
        let version = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> usize>(found) };
        // SAFETY: takes nothing.
        unsafe { version() }
    });
    *VERSION
}

/// Returns the properties of the simulated GPU as cuDNN's JSON.
fn description() -> String {
    let gpu = &settings().gpu;
    let of = gpu.architecture();
    let capability = 100 * gpu.capability.0 + 10 * gpu.capability.1;
    let name = gpu.name.replace(['"', '\\'], " ");
    format!(
        r#"{{"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"deviceName":"{name}","cudaDeviceId":0,"#
    ) + &format!(
        r#""deviceVer":{capability},"deviceVersion":{capability},"multiProcessorCount":{},"driverVer":{CUDA_VERSION},"#,
        gpu.multiprocessors
    ) + &format!(
        r#""driverVersion":{CUDA_VERSION},"maxSharedMemoryPerBlockOptin":{},"totalGlobalMem":{},"regsPerBlock":65536,"#,
        of.shared_bytes_per_block, gpu.memory_bytes
    ) + &format!(
        r#""smClockRateKHz":1980000,"memClockRateKHz":2619000,"l2CacheSize":{},"warpSize":32,"maxSharedMemoryPerBlock":49152,"#,
        gpu.l2_bytes
    ) + &format!(
        r#""reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"pciDeviceId":0,"maxCtasPerSM":{},"#,
        of.blocks_per_multiprocessor
    ) + &format!(
        r#""maxThreadsPerBlock":1024,"maxThreadsPerSM":{},"isTccDriver":0,"supportCoopLaunch":1,"oversizedSharedMemoryPerBlock":0}}"#,
        of.threads_per_multiprocessor
    )
}

fn load() -> Option<Backend> {
    if !settings().asks_cudnn || version() < FIRST {
        return None;
    }
    let found = |name: &CStr| Some(function(name)).filter(|function| !function.is_null());
    let create = found(c"cudnnBackendCreateDescriptor")?;
    let set = found(c"cudnnBackendSetAttribute")?;
    let get = found(c"cudnnBackendGetAttribute")?;
    let finalize = found(c"cudnnBackendFinalize")?;
    let destroy = found(c"cudnnBackendDestroyDescriptor")?;
    // SAFETY: the library's functions of these names, as its header declares them.
    let mut backend = unsafe {
        Backend {
            create: std::mem::transmute::<*mut c_void, Create>(create),
            set: std::mem::transmute::<*mut c_void, Set>(set),
            get: std::mem::transmute::<*mut c_void, Get>(get),
            finalize: std::mem::transmute::<*mut c_void, One>(finalize),
            destroy: std::mem::transmute::<*mut c_void, One>(destroy),
            device: 0,
        }
    };
    let text = CString::new(description()).ok()?;
    // SAFETY: the functions get the arguments that the header documents; the text outlives the call.
    let is_accepted = unsafe {
        (backend.create)(DEVICE_PROPERTIES, &raw mut backend.device) == SUCCESS
            && (backend.set)(
                backend.device,
                JSON_REPRESENTATION,
                TYPE_CHAR,
                text.as_bytes().len() as i64,
                text.as_ptr().cast(),
            ) == SUCCESS
            && (backend.finalize)(backend.device) == SUCCESS
    };
    is_accepted.then_some(backend)
}

/// Returns the library's functions and the described device; `None` if queries of cuDNN are disabled, or if the library
/// is not loaded, too old or rejects the device.
pub(super) fn backend() -> Option<&'static Backend> {
    static BACKEND: LazyLock<Option<Backend>> = LazyLock::new(load);
    BACKEND.as_ref()
}
