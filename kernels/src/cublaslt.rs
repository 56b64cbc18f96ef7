//! The table of those functions of cuBLASLt (CUDA's matrix multiplication library) that this crate calls.
#![expect(unsafe_code, reason = "calls cuBLASLt's C functions")]

use std::ffi::{c_int, c_void};

use cudarc::cublaslt::sys;

use crate::functions::functions;

functions! {
    /// cuBLASLt.
    CublasLt {
        fn cublasLtGetVersion() -> usize;
        fn cublasLtCreate(handle: *mut sys::cublasLtHandle_t) -> sys::cublasStatus_t;
        fn cublasLtDestroy(handle: sys::cublasLtHandle_t) -> sys::cublasStatus_t;
        fn cublasLtMatrixLayoutCreate(
            layout: *mut sys::cublasLtMatrixLayout_t, number: sys::cudaDataType, rows: u64, columns: u64, leading: i64,
        ) -> sys::cublasStatus_t;
        fn cublasLtMatrixLayoutSetAttribute(
            layout: sys::cublasLtMatrixLayout_t, attribute: sys::cublasLtMatrixLayoutAttribute_t,
            value: *const c_void, bytes: usize,
        ) -> sys::cublasStatus_t;
        fn cublasLtMatrixLayoutDestroy(layout: sys::cublasLtMatrixLayout_t) -> sys::cublasStatus_t;
        fn cublasLtMatmulDescCreate(
            description: *mut sys::cublasLtMatmulDesc_t, compute: sys::cublasComputeType_t, scale: sys::cudaDataType,
        ) -> sys::cublasStatus_t;
        fn cublasLtMatmulDescSetAttribute(
            description: sys::cublasLtMatmulDesc_t, attribute: sys::cublasLtMatmulDescAttributes_t,
            value: *const c_void, bytes: usize,
        ) -> sys::cublasStatus_t;
        fn cublasLtMatmulDescDestroy(description: sys::cublasLtMatmulDesc_t) -> sys::cublasStatus_t;
        fn cublasLtMatmulPreferenceCreate(search: *mut sys::cublasLtMatmulPreference_t) -> sys::cublasStatus_t;
        fn cublasLtMatmulPreferenceSetAttribute(
            search: sys::cublasLtMatmulPreference_t, attribute: sys::cublasLtMatmulPreferenceAttributes_t,
            value: *const c_void, bytes: usize,
        ) -> sys::cublasStatus_t;
        fn cublasLtMatmulPreferenceDestroy(search: sys::cublasLtMatmulPreference_t) -> sys::cublasStatus_t;
        fn cublasLtMatmulAlgoGetHeuristic(
            handle: sys::cublasLtHandle_t, description: sys::cublasLtMatmulDesc_t,
            a: sys::cublasLtMatrixLayout_t, b: sys::cublasLtMatrixLayout_t,
            c: sys::cublasLtMatrixLayout_t, d: sys::cublasLtMatrixLayout_t,
            search: sys::cublasLtMatmulPreference_t, most: c_int,
            found: *mut sys::cublasLtMatmulHeuristicResult_t, count: *mut c_int,
        ) -> sys::cublasStatus_t;
        fn cublasLtMatmul(
            handle: sys::cublasLtHandle_t, description: sys::cublasLtMatmulDesc_t, scale: *const c_void,
            a: *const c_void, a_layout: sys::cublasLtMatrixLayout_t,
            b: *const c_void, b_layout: sys::cublasLtMatrixLayout_t, keep: *const c_void,
            c: *const c_void, c_layout: sys::cublasLtMatrixLayout_t,
            d: *mut c_void, d_layout: sys::cublasLtMatrixLayout_t,
            algorithm: *const sys::cublasLtMatmulAlgo_t, workspace: *mut c_void, workspace_bytes: usize,
            stream: sys::cudaStream_t,
        ) -> sys::cublasStatus_t;
    }
}

impl CublasLt {
    /// Returns the major and minor version.
    pub(crate) fn version(&self) -> (u32, u32) {
        // SAFETY: takes no arguments.
        let version = unsafe { (self.cublasLtGetVersion)() } as u32;
        (version / 10_000, version / 100 % 100)
    }
}
