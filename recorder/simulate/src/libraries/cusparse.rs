//! cuSPARSE products with sparse matrices, without workspaces, since their sizes on a GPU are unknown. Products with a
//! sparse result are not simulated, since its size depends on values.
#![cfg_attr(not(test), expect(unsafe_code, reason = "exports functions under NVIDIA's names"))]

use std::ffi::{c_char, c_int};

use super::workspace::{sizes_zero, unknown_workspace};
use crate::abi::{creates, functions, succeeds};

creates! {
    cusparseCreate cusparseCreateCoo cusparseCreateCsr cusparseCreateDnMat cusparseCreateDnVec cusparseCreateMatDescr
    cusparseSpSM_createDescr cusparseSpSV_createDescr
}

succeeds! {
    cusparseDestroy cusparseDestroyDnMat cusparseDestroyDnVec cusparseDestroyMatDescr cusparseDestroySpMat
    cusparseSpSM_destroyDescr cusparseSpSV_destroyDescr
    cusparseSetStream cusparseSetPointerMode cusparseSetMatDiagType cusparseSetMatFillMode cusparseSetMatIndexBase
    cusparseSetMatType cusparseCsrSetPointers cusparseCsrSetStridedBatch cusparseDnMatSetStridedBatch
    cusparseSpMatSetAttribute cusparseCreateIdentityPermutation cusparseXcoo2csr
}

sizes_zero! { [_ _ _ _ _ _] [bytes: usize] cusparseXcoosort_bufferSizeExt cusparseXcsrsort_bufferSizeExt }
sizes_zero! { [_ _ _ _ _ _ _ _ _] [bytes: usize] cusparseSpMV_bufferSize cusparseSpSV_bufferSize }
sizes_zero! { [_ _ _ _ _ _ _ _ _ _] [bytes: usize]
    cusparseSpMM_bufferSize cusparseSDDMM_bufferSize cusparseSpSM_bufferSize
}

unknown_workspace! {
    cusparseXcoosortByRow cusparseXcsrsort cusparseSpMV cusparseSpMM cusparseSDDMM cusparseSDDMM_preprocess
    cusparseSpSV_analysis cusparseSpSV_solve cusparseSpSM_analysis cusparseSpSM_solve
}

functions! {
    fn cusparseGetErrorString(status: c_int) -> *const c_char {
        if status == 0 { c"success".as_ptr() } else { c"not supported by the simulated GPU".as_ptr() }
    }
}
