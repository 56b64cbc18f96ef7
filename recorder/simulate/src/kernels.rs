//! Kernels, which can be registered, looked up and launched, but are not executed.
//!
//! PyTorch's libraries register their kernels when they are loaded. Kernels compiled at run time by NVRTC or Triton are
//! loaded through the driver.
#![cfg_attr(not(test), expect(unsafe_code, reason = "exports functions under NVIDIA's names"))]

use std::ffi::c_int;

use crate::abi::{Out, answer, creates, functions, give, succeeds};
use crate::settings::settings;

const MAX_THREADS: c_int = 1024;

/// The fields of `cudaFuncAttributes` that PyTorch and CUB read.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct FunctionAttributes {
    shared_bytes: usize,
    constant_bytes: usize,
    local_bytes: usize,
    threads_per_block: c_int,
    registers: c_int,
    ptx_version: c_int,
    binary_version: c_int,
    cache_mode: c_int,
    dynamic_shared_bytes: c_int,
}

/// Handles of the modules that libraries register.
static MODULES: [usize; 8] = [0; 8];

/// Defines functions that launch kernels. After a launch, the contents of device memory are unknown.
macro_rules! launches {
    ($($name:ident)*) => { $($crate::abi::functions! {
        fn $name() -> $crate::abi::Status { $crate::contents::kernel_ran(); $crate::abi::SUCCESS }
    })* };
}

pub(crate) use launches;

launches! {
    __cudaLaunchKernel cudaLaunchKernel cudaLaunchKernelExC cudaLaunchCooperativeKernel
    cuLaunchKernel cuLaunchKernelEx cuLaunchCooperativeKernel
}

// Called by the code that the compiler puts into each library with kernels.
functions! {
    fn __cudaRegisterFatBinary() -> &'static [usize; 8] { &MODULES }
    fn __cudaRegisterFatBinaryEnd() -> () {}
    fn __cudaUnregisterFatBinary() -> () {}
    fn __cudaRegisterFunction() -> () {}
    fn __cudaRegisterVar() -> () {}
    fn __cudaRegisterManagedVar() -> () {}
    fn __cudaInitModule() -> u8 { 1 }
    fn __cudaGetKernel(kernel: Out<'_, usize>, function: usize) { give(kernel, function) }
}

functions! {
    fn cudaFuncGetAttributes(out: Out<'_, FunctionAttributes>) {
        let gpu = &settings().gpu;
        let version = gpu.kernel_version();
        give(out, FunctionAttributes {
            shared_bytes: 0,
            constant_bytes: 0,
            local_bytes: 0,
            threads_per_block: MAX_THREADS,
            registers: 32,
            ptx_version: version,
            binary_version: version,
            cache_mode: 0,
            dynamic_shared_bytes: gpu.architecture().shared_bytes_per_block,
        });
    }

    /// Returns the maximum number of threads per block for attribute 0, and 0 for the others, which are sizes.
    fn cuFuncGetAttribute, cuKernelGetAttribute(value: Out<'_, c_int>, attribute: c_int) {
        give(value, if attribute == 0 { MAX_THREADS } else { 0 });
    }

    fn cudaOccupancyMaxActiveBlocksPerMultiprocessor, cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
        cuOccupancyMaxActiveBlocksPerMultiprocessor, cuOccupancyMaxActiveClusters,
        cudaOccupancyMaxActiveClusters(count: Out<'_, c_int>) { give(count, 2) }

    /// Returns the address of the copy on the host that exists for each device variable.
    fn cudaGetSymbolAddress, cudaGetFuncBySymbol(address: Out<'_, usize>, symbol: usize) { give(address, symbol) }

    fn cuModuleGetLoadingMode(mode: Out<'_, c_int>) { give(mode, 2) }
    fn cuModuleGetGlobal_v2(address: Out<'_, usize>, bytes: Out<'_, usize>) { give(address, 0x1000); give(bytes, 8) }
    fn cudaLibraryGetKernelCount(count: Out<'_, u32>) { give(count, 1) }
}

creates! {
    cuModuleLoad cuModuleLoadData cuModuleLoadDataEx cuModuleGetFunction
    cuLibraryLoadData cuLibraryLoadFromFile cuLibraryGetKernel cuLibraryGetModule cuKernelGetFunction
    cudaLibraryLoadData cudaLibraryLoadFromFile cudaLibraryGetKernel
}

succeeds! {
    __cudaPushCallConfiguration __cudaPopCallConfiguration
    cudaFuncSetAttribute cudaKernelSetAttributeForDevice cudaFuncSetCacheConfig
    cuModuleUnload cuLibraryUnload cudaLibraryUnload cuFuncSetAttribute cuFuncSetCacheConfig cuKernelSetAttribute
    cuTensorMapEncodeTiled cuTensorMapEncodeIm2col cuOccupancyMaxPotentialClusterSize
}

// Linking of kernels at run time, which cuDNN does for kernels that it composes.
functions! {
    fn cuLinkCreate(_count: u32, _options: usize, _values: usize, state: Out<'_, usize>) {
        give(state, crate::abi::new_handle());
    }
    fn cuLinkCreate_v2(count: u32, options: usize, values: usize, state: Out<'_, usize>) {
        cuLinkCreate(count, options, values, state)
    }
    fn cuLinkComplete(_state: usize, image: Out<'_, usize>, bytes: Out<'_, usize>) {
        give(image, MODULES.as_ptr().addr());
        give(bytes, size_of_val(&MODULES));
    }
}

succeeds! { cuLinkAddData cuLinkAddData_v2 cuLinkAddFile cuLinkAddFile_v2 cuLinkDestroy }
