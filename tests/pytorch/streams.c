// Streams and events: work is complete as soon as it is submitted, so nothing waits.
// PyTorch calls this for torch.cuda.Stream and Event, and to find out when a block used on another stream is free.
#include "stand_in.h"

CREATES(cudaStreamCreate)
CREATES(cudaStreamCreateWithFlags)
CREATES(cudaStreamCreateWithPriority)
SUCCEEDS(cudaStreamDestroy)
SUCCEEDS(cudaStreamQuery)
SUCCEEDS(cudaStreamSynchronize)
SUCCEEDS(cudaStreamWaitEvent)
SUCCEEDS(cuStreamWriteValue32)

int cudaStreamGetPriority(const void *stream, int *priority) {
    *priority = 0;
    return SUCCESS;
}

// Greater priorities are smaller numbers.
int cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return SUCCESS;
}

CREATES(cudaEventCreate)
CREATES(cudaEventCreateWithFlags)
SUCCEEDS(cudaEventDestroy)
SUCCEEDS(cudaEventQuery)
SUCCEEDS(cudaEventRecord)
SUCCEEDS(cudaEventRecordWithFlags)
SUCCEEDS(cudaEventSynchronize)
UNSUPPORTED(cudaIpcGetEventHandle)
UNSUPPORTED(cudaIpcOpenEventHandle)

int cudaEventElapsedTime(float *milliseconds) {
    *milliseconds = 0;
    return SUCCESS;
}

int cudaLaunchHostFunc(const void *stream, void (*function)(void *), void *argument) {
    function(argument);
    return SUCCESS;
}

int cudaStreamAddCallback(void *stream, void (*callback)(void *, int, void *), void *argument) {
    callback(stream, SUCCESS, argument);
    return SUCCESS;
}

// CUDA graphs: a stream never captures one.
UNSUPPORTED(cudaStreamBeginCapture)
UNSUPPORTED(cudaStreamBeginCaptureToGraph)
UNSUPPORTED(cudaStreamEndCapture)
UNSUPPORTED(cudaStreamUpdateCaptureDependencies)
UNSUPPORTED(cudaDeviceGetGraphMemAttribute)
UNSUPPORTED(cudaDeviceSetGraphMemAttribute)
SUCCEEDS(cudaThreadExchangeStreamCaptureMode)

int cudaStreamIsCapturing(const void *stream, int *status) {
    *status = 0;
    return SUCCESS;
}

int cuStreamIsCapturing(const void *stream, int *status) { return cudaStreamIsCapturing(stream, status); }

// CUDA 13.
int cudaStreamGetCaptureInfo(const void *stream, int *status, unsigned long long *id) {
    if (status) *status = 0;
    if (id) *id = 0;
    return SUCCESS;
}

// CUDA 12.
int cudaStreamGetCaptureInfo_v2(const void *stream, int *status, unsigned long long *id) {
    return cudaStreamGetCaptureInfo(stream, status, id);
}
