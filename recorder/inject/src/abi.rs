//! Types and constants of the CUDA driver API for memory.

use std::ffi::c_void;

/// Result code of the driver's functions.
pub(crate) type Answer = i32;

pub(crate) const SUCCESS: Answer = 0;
pub(crate) const OUT_OF_MEMORY: Answer = 2;
/// `CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND`, returned if the driver or its function is missing.
pub(crate) const NOT_FOUND: Answer = 302;

/// `CU_MEM_LOCATION_TYPE_DEVICE`.
pub(crate) const ON_DEVICE: i32 = 1;

/// `CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL`.
pub(crate) const DEVICE_ORDINAL: i32 = 9;

/// `CU_STREAM_LEGACY` and `CU_STREAM_PER_THREAD`, constant stream handles.
pub(crate) const STREAM_LEGACY: u64 = 1;
pub(crate) const STREAM_PER_THREAD: u64 = 2;

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
pub(crate) const PER_THREAD_DEFAULT_STREAM: u64 = 2;
/// `CU_GET_PROC_ADDRESS_LEGACY_STREAM`.
pub(crate) const LEGACY_STREAM: u64 = 1;

/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
pub(crate) const CAPTURE_RELAXED: i32 = 2;
/// `CU_STREAM_CAPTURE_STATUS_ACTIVE`.
pub(crate) const CAPTURE_ACTIVE: i32 = 1;

/// The first fields of `CUmemAllocationProp`, the properties of requested memory.
#[repr(C)]
pub(crate) struct Properties {
    pub(crate) kind: i32,
    pub(crate) handle_kinds: i32,
    pub(crate) location: Location,
}

/// The first fields of `CUmemLocation`.
#[repr(C)]
pub(crate) struct Location {
    pub(crate) kind: i32,
    pub(crate) id: i32,
}

/// `CUDA_ARRAY_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Array {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) format: u32,
    pub(crate) channels: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Array3d {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
    pub(crate) format: u32,
    pub(crate) channels: u32,
    pub(crate) flags: u32,
}

/// An untyped function pointer, cast to the function's type before a call.
pub(crate) type Function = *mut c_void;
