//! Matrix products of cuBLAS and cuBLASLt. PyTorch allocates their workspaces itself, sized by the compute capability.
#![cfg_attr(not(test), expect(unsafe_code, reason = "exports functions under NVIDIA's names"))]

use std::ffi::c_int;
use std::mem::MaybeUninit;

use super::workspace::sizes_zero;
use crate::abi::{Out, answer, creates, functions, give, succeeds};
use crate::kernels::launches;

creates! {
    cublasCreate_v2 cublasLtCreate cublasLtMatmulDescCreate cublasLtMatmulPreferenceCreate cublasLtMatrixLayoutCreate
    cublasLtMatrixTransformDescCreate
}

succeeds! {
    cublasDestroy_v2 cublasSetMathMode cublasSetPointerMode_v2 cublasSetSmCountTarget cublasSetStream_v2
    cublasSetWorkspace_v2 cublasSetAtomicsMode
    cublasLtDestroy cublasLtMatmulAlgoCheck cublasLtMatmulAlgoInit cublasLtMatmulAlgoConfigSetAttribute
    cublasLtMatmulAlgoConfigGetAttribute cublasLtMatmulDescDestroy cublasLtMatmulDescSetAttribute
    cublasLtMatmulPreferenceDestroy cublasLtMatmulPreferenceSetAttribute cublasLtMatrixLayoutDestroy
    cublasLtMatrixLayoutSetAttribute cublasLtMatrixTransformDescDestroy cublasLtMatrixTransformDescSetAttribute
}

launches! {
    cublasSgemm_v2 cublasDgemm_v2 cublasCgemm_v2 cublasZgemm_v2 cublasHgemm cublasSgemmEx cublasGemmEx cublasCgemmEx
    cublasSgemmStridedBatched cublasDgemmStridedBatched cublasCgemmStridedBatched cublasZgemmStridedBatched
    cublasHgemmStridedBatched
    cublasSgemmBatched cublasDgemmBatched cublasCgemmBatched cublasZgemmBatched
    cublasGemmStridedBatchedEx cublasGemmBatchedEx cublasGemmGroupedBatchedEx cublasSgemmGroupedBatched
    cublasSgemv_v2 cublasDgemv_v2 cublasCgemv_v2 cublasZgemv_v2
    cublasStrsm_v2 cublasDtrsm_v2 cublasCtrsm_v2 cublasZtrsm_v2
    cublasStrsmBatched cublasDtrsmBatched cublasCtrsmBatched cublasZtrsmBatched
    cublasSgetrfBatched cublasDgetrfBatched cublasCgetrfBatched cublasZgetrfBatched
    cublasSdot_v2 cublasDdot_v2 cublasCdotu_v2 cublasCdotc_v2 cublasZdotu_v2 cublasZdotc_v2 cublasDotEx
    cublasLtMatmul cublasLtMatrixTransform
}

// The result is the number of the first invalid parameter, or 0 if all are valid.
sizes_zero! { [_ _ _ _ _ _] [bytes: c_int]
    cublasSgeqrfBatched cublasDgeqrfBatched cublasCgeqrfBatched cublasZgeqrfBatched
}
sizes_zero! { [_ _ _ _ _ _ _ _ _] [bytes: c_int]
    cublasSgetrsBatched cublasDgetrsBatched cublasCgetrsBatched cublasZgetrsBatched
    cublasSgelsBatched cublasDgelsBatched cublasCgelsBatched cublasZgelsBatched
}

functions! {
    fn cublasGetMathMode(_handle: usize, mode: Out<'_, c_int>) { give(mode, 0) }
    fn cublasGetPointerMode_v2(_handle: usize, mode: Out<'_, c_int>) { give(mode, 0) }
    fn cublasGetStream_v2(_handle: usize, stream: Out<'_, usize>) { give(stream, 0) }
    fn cublasGetVersion_v2(_handle: usize, version: Out<'_, c_int>) { give(version, 130_400) }
    fn cublasLtGetVersion() -> usize { 130_400 }

    /// Proposes one algorithm without a workspace, as a `cublasLtMatmulHeuristicResult_t` of zeros.
    fn cublasLtMatmulAlgoGetHeuristic(
        _handle: usize,
        _operation: usize,
        _a: usize,
        _b: usize,
        _c: usize,
        _d: usize,
        _preference: usize,
        _requested: c_int,
        results: Out<'_, [u8; 96]>,
        count: Out<'_, c_int>,
    ) {
        if let Some(results) = results { *results = MaybeUninit::new([0; 96]); }
        give(count, 1);
    }
}
