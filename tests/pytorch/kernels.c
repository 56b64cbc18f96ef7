// Kernels: they can be registered, queried and launched, and do nothing.
// PyTorch's libraries register theirs when they are loaded; kernels that NVRTC compiles at run time use cuModule*.
#include "stand_in.h"

// Code that the compiler puts into each library with kernels.

void **__cudaRegisterFatBinary(void) {
    static void *modules[8];
    return modules;
}

void __cudaRegisterFatBinaryEnd(void) {}
void __cudaUnregisterFatBinary(void) {}
void __cudaRegisterFunction(void) {}
void __cudaRegisterVar(void) {}

char __cudaInitModule(void) { return 1; }

int __cudaGetKernel(const void **kernel, const void *function) {
    *kernel = function;
    return SUCCESS;
}

// The grid of a launch, on its way to cudaLaunchKernel, which ignores it.
SUCCEEDS(__cudaPushCallConfiguration)
SUCCEEDS(__cudaPopCallConfiguration)

SUCCEEDS(__cudaLaunchKernel)
SUCCEEDS(cudaLaunchKernel)
SUCCEEDS(cudaLaunchKernelExC)
SUCCEEDS(cudaLaunchCooperativeKernel)
SUCCEEDS(cudaFuncSetAttribute)
SUCCEEDS(cudaKernelSetAttributeForDevice)

// The fields of cudaFuncAttributes that PyTorch and CUB read.
struct function_attributes {
    size_t shared_bytes, constant_bytes, local_bytes;
    int threads_per_block, registers, ptx_version, binary_version, cache_mode, dynamic_shared_bytes;
};

int cudaFuncGetAttributes(struct function_attributes *attributes) {
    int version = COMPUTE_MAJOR * 10 + COMPUTE_MINOR;
    *attributes = (struct function_attributes){
        .threads_per_block = 1024,
        .registers = 32,
        .ptx_version = version,
        .binary_version = version,
        .dynamic_shared_bytes = 166912,
    };
    return SUCCESS;
}

int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks) {
    *blocks = 2;
    return SUCCESS;
}

int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks) {
    *blocks = 2;
    return SUCCESS;
}

// A variable of the device has a copy on the host, whose address serves as well.
int cudaGetSymbolAddress(const void **address, const void *symbol) {
    *address = symbol;
    return SUCCESS;
}

// Kernels compiled at run time.

CREATES(cuModuleLoad)
CREATES(cuModuleLoadData)
CREATES(cuModuleLoadDataEx)
CREATES(cuModuleGetFunction)
SUCCEEDS(cuModuleUnload)
SUCCEEDS(cuFuncSetAttribute)
SUCCEEDS(cuFuncSetCacheConfig)
SUCCEEDS(cuLaunchKernel)
SUCCEEDS(cuLaunchKernelEx)
SUCCEEDS(cuLaunchCooperativeKernel)
SUCCEEDS(cuTensorMapEncodeTiled)
UNSUPPORTED(cuLinkCreate_v2)
UNSUPPORTED(cuLinkAddData_v2)
UNSUPPORTED(cuLinkComplete)

int cuFuncGetAttribute(int *value) {
    *value = 0;
    return SUCCESS;
}

int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks) {
    *blocks = 2;
    return SUCCESS;
}
