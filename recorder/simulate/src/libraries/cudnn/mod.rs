//! cuDNN. The real library describes operations and computes their workspace sizes for the described device; operations
//! on the device do nothing.
#![cfg_attr(not(test), expect(unsafe_code, reason = "exports functions under NVIDIA's names"))]

use std::ffi::{c_char, c_int};

use super::workspace::{sizes_zero, unknown_workspace};
use crate::abi::{
    CUDA_VERSION, NOT_SUPPORTED, Out, SUCCESS, Status, answer, creates, functions, give, refuses, succeeds,
};
use crate::kernels::launches;

mod real;
mod backend;
mod recurrent;

creates! { cudnnCreate }
succeeds! { cudnnDestroy cudnnSetStream cudnnSetDropoutDescriptor cudnnRestoreDropoutDescriptor }

// Batch normalization and spatial transformers have no workspace or a reserve that PyTorch passes.
launches! {
    cudnnBatchNormalizationForwardInference cudnnBatchNormalizationForwardTrainingEx cudnnBatchNormalizationBackwardEx
    cudnnSpatialTfGridGeneratorForward cudnnSpatialTfGridGeneratorBackward cudnnSpatialTfSamplerForward
    cudnnSpatialTfSamplerBackward cudnnPoolingForward
}

sizes_zero! { [_ _ _ _ _] [bytes: usize] cudnnGetCTCLossWorkspaceSize_v8 }
sizes_zero! { [_ _ _ _ _ _ _ _] [bytes: usize] cudnnGetCTCLossWorkspaceSize }
unknown_workspace! { cudnnCTCLoss cudnnCTCLoss_v8 }

// The interface of cuDNN 7 for convolutions, which PyTorch uses only if it is asked to.
refuses! { cudnnCreateConvolutionDescriptor }

functions! {
    fn cudnnGetVersion() -> usize { real::version() }
    fn cudnnGetCudartVersion() -> usize { CUDA_VERSION as usize }
    fn cudnnGetStream(_handle: usize, stream: Out<'_, usize>) { give(stream, 0) }
    fn cudnnGetErrorString(status: Status) -> *const c_char {
        if status == SUCCESS { c"CUDNN_STATUS_SUCCESS".as_ptr() } else { c"not supported by the simulated GPU".as_ptr() }
    }
    fn cudnnGetLastErrorString(text: Option<&mut c_char>, bytes: usize) -> () {
        if let Some(first) = text.filter(|_| bytes > 0) { *first = 0; }
    }
    /// Returns the major, minor or patch version for properties 0 to 2.
    fn cudnnGetProperty(property: c_int, value: Out<'_, c_int>) {
        let version = real::version() as c_int;
        give(value, match property {
            0 => version / 10_000,
            1 => version / 100 % 100,
            2 => version % 100,
            _ => return NOT_SUPPORTED,
        });
        SUCCESS
    }

    fn cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
        _handle: usize, _mode: c_int, _operations: c_int, _x: usize, _z: usize, _y: usize, _statistics: usize,
        _activation: usize, bytes: Out<'_, usize>,
    ) { give(bytes, 0) }
    fn cudnnGetBatchNormalizationBackwardExWorkspaceSize(
        _handle: usize, _mode: c_int, _operations: c_int, _x: usize, _y: usize, _dy: usize, _dz: usize, _dx: usize,
        _statistics: usize, _activation: usize, bytes: Out<'_, usize>,
    ) { give(bytes, 0) }
    fn cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
        _handle: usize, _mode: c_int, _operations: c_int, _activation: usize, _x: usize, bytes: Out<'_, usize>,
    ) { give(bytes, 0) }
}
