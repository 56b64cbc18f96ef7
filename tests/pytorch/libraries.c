// cuBLAS, cuBLASLt and cuDNN: handles can be created, and operations succeed without effect.
// PyTorch calls this for matrix products, convolutions and batch normalization; these libraries would need a GPU.
#include <string.h>

#include "stand_in.h"

// A function for each of the four dtypes of BLAS.
#define FOR_EACH_DTYPE(before, after) \
    SUCCEEDS(before##S##after)        \
    SUCCEEDS(before##D##after)        \
    SUCCEEDS(before##C##after)        \
    SUCCEEDS(before##Z##after)

CREATES(cublasCreate_v2)
SUCCEEDS(cublasDestroy_v2)
SUCCEEDS(cublasSetMathMode)
SUCCEEDS(cublasSetPointerMode_v2)
SUCCEEDS(cublasSetSmCountTarget)
SUCCEEDS(cublasSetStream_v2)
SUCCEEDS(cublasSetWorkspace_v2)

int cublasGetMathMode(const void *handle, int *mode) {
    *mode = 0;
    return SUCCESS;
}

int cublasGetPointerMode_v2(const void *handle, int *mode) {
    *mode = 0;
    return SUCCESS;
}

FOR_EACH_DTYPE(cublas, gemm_v2)
FOR_EACH_DTYPE(cublas, gemmStridedBatched)
FOR_EACH_DTYPE(cublas, gemmBatched)
FOR_EACH_DTYPE(cublas, gemv_v2)
FOR_EACH_DTYPE(cublas, trsm_v2)
FOR_EACH_DTYPE(cublas, trsmBatched)
SUCCEEDS(cublasSgemmEx)
SUCCEEDS(cublasGemmEx)
SUCCEEDS(cublasGemmStridedBatchedEx)
SUCCEEDS(cublasSdot_v2)
SUCCEEDS(cublasDdot_v2)
SUCCEEDS(cublasDotEx)
SUCCEEDS(cublasCdotu_v2)
SUCCEEDS(cublasCdotc_v2)
SUCCEEDS(cublasZdotu_v2)
SUCCEEDS(cublasZdotc_v2)

CREATES(cublasLtMatmulDescCreate)
CREATES(cublasLtMatmulPreferenceCreate)
CREATES(cublasLtMatrixLayoutCreate)
SUCCEEDS(cublasLtMatmul)
SUCCEEDS(cublasLtMatmulAlgoCheck)
SUCCEEDS(cublasLtMatmulAlgoInit)
SUCCEEDS(cublasLtMatmulAlgoConfigSetAttribute)
SUCCEEDS(cublasLtMatmulDescDestroy)
SUCCEEDS(cublasLtMatmulDescSetAttribute)
SUCCEEDS(cublasLtMatmulPreferenceDestroy)
SUCCEEDS(cublasLtMatmulPreferenceSetAttribute)
SUCCEEDS(cublasLtMatrixLayoutDestroy)
SUCCEEDS(cublasLtMatrixLayoutSetAttribute)

size_t cublasLtGetVersion(void) { return 130400; }

// One algorithm without a workspace: a cublasLtMatmulHeuristicResult_t of zeros.
int cublasLtMatmulAlgoGetHeuristic(const void *handle, const void *operation, const void *a, const void *b,
                                   const void *c, const void *d, const void *preference, int requested, void *results,
                                   int *count) {
    memset(results, 0, 96);
    *count = 1;
    return SUCCESS;
}

// cuDNN. Newer than what PyTorch 2.6 and 2.15 were compiled with, as PyTorch requires.

size_t cudnnGetVersion(void) { return 92600; }

size_t cudnnGetCudartVersion(void) { return CUDA_VERSION; }

CREATES(cudnnCreate)
SUCCEEDS(cudnnDestroy)
SUCCEEDS(cudnnSetStream)

int cudnnGetStream(const void *handle, void **stream) {
    *stream = NULL;
    return SUCCESS;
}

const char *cudnnGetErrorString(int status) {
    return status == SUCCESS ? "CUDNN_STATUS_SUCCESS" : "not supported by the stand-in for CUDA";
}

void cudnnGetLastErrorString(char *text, size_t bytes) {
    if (bytes > 0) *text = '\0';
}

// The graph API, which convolutions use: there is exactly one engine, and it needs no workspace.

int cudnnBackendCreateDescriptor(int type, void **descriptor) {
    *descriptor = new_handle();
    return SUCCESS;
}

SUCCEEDS(cudnnBackendDestroyDescriptor)
SUCCEEDS(cudnnBackendSetAttribute)
SUCCEEDS(cudnnBackendFinalize)
SUCCEEDS(cudnnBackendExecute)

// The types of attributes that PyTorch reads: sizes of workspaces, and descriptors of engines.
enum { INT64 = 3, DESCRIPTOR = 15 };

// A descriptor is left as the caller created it.
int cudnnBackendGetAttribute(const void *descriptor, int name, int type, int64_t requested, int64_t *count,
                             void *elements) {
    if (type == INT64 && elements != NULL && requested > 0) memset(elements, 0, sizeof(int64_t));
    if (count) *count = type == INT64 || type == DESCRIPTOR;
    return SUCCESS;
}

// Batch normalization, without a workspace and a reserve. PyTorch makes its descriptors with the real cuDNN.

SUCCEEDS(cudnnBatchNormalizationForwardInference)
SUCCEEDS(cudnnBatchNormalizationForwardTrainingEx)
SUCCEEDS(cudnnBatchNormalizationBackwardEx)

int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(const void *handle, int mode, int operations,
                                                             const void *x, const void *z, const void *y,
                                                             const void *statistics, const void *activation,
                                                             size_t *bytes) {
    *bytes = 0;
    return SUCCESS;
}

int cudnnGetBatchNormalizationBackwardExWorkspaceSize(const void *handle, int mode, int operations, const void *x,
                                                      const void *y, const void *dy, const void *dz, const void *dx,
                                                      const void *statistics, const void *activation, size_t *bytes) {
    *bytes = 0;
    return SUCCESS;
}

int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(const void *handle, int mode, int operations,
                                                         const void *activation, const void *x, size_t *bytes) {
    *bytes = 0;
    return SUCCESS;
}

// What would need the real cuDNN to accept a handle of the stand-in fails at its first step instead of crashing.
UNSUPPORTED(cudnnCreateRNNDescriptor)
UNSUPPORTED(cudnnCreateRNNDataDescriptor)
UNSUPPORTED(cudnnCreateDropoutDescriptor)
UNSUPPORTED(cudnnCreateCTCLossDescriptor)
UNSUPPORTED(cudnnCreateConvolutionDescriptor)
UNSUPPORTED(cudnnCreatePoolingDescriptor)
UNSUPPORTED(cudnnCreateSpatialTransformerDescriptor)
