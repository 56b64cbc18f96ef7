// The devices of the stand-in: how many there are, their properties, and the current device of each thread.
// PyTorch reads this when it initializes CUDA and when an operation chooses a kernel.
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stand_in.h"

static size_t bytes_per_device = (size_t)200 << 30;
static int devices = 1;
static _Thread_local int current;

// Reads a number from the environment, and ends the program if it is not one: a test would otherwise pass or fail with
// other memory than its author meant.
static unsigned long long from_environment(const char *name, unsigned long long otherwise, unsigned long long most) {
    const char *text = getenv(name);
    if (text == NULL || *text == '\0') return otherwise;
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    if (*end != '\0' || *text == '-' || value > most) {
        fprintf(stderr, "error: invalid %s '%s': expected an integer of at most %llu\n", name, text, most);
        _Exit(2);
    }
    return value;
}

__attribute__((constructor)) static void read_settings(void) {
    bytes_per_device = from_environment("STAND_IN_DEVICE_BYTES", bytes_per_device, 1ULL << 46);
    devices = (int)from_environment("STAND_IN_DEVICES", 1, MOST_DEVICES);
}

int device_count(void) { return devices; }

int current_device(void) { return current; }

size_t device_bytes(void) { return bytes_per_device; }

void *new_handle(void) {
    static atomic_uintptr_t last = 0x1000;
    return (void *)(atomic_fetch_add(&last, 16) + 16);
}

int cudaGetDeviceCount(int *count) {
    *count = devices;
    return devices == 0 ? NO_DEVICE : SUCCESS;
}

int cudaGetDevice(int *device) {
    *device = current;
    return devices == 0 ? NO_DEVICE : SUCCESS;
}

int cudaSetDevice(int device) {
    if (device < 0 || device >= devices) return INVALID_DEVICE;
    current = device;
    return SUCCESS;
}

// A number that describes a device: the attribute that asks for it (0: none), and where it is in `cudaDeviceProp` of
// CUDA 12 and 13 (0: not there). CUDA 13 removed fields in the middle.
struct property {
    int attribute, offset_12, offset_13, bytes;
    long long value;
};

// An A100. The values decide which kernels PyTorch chooses, and so what it allocates for them.
static const struct property PROPERTIES[] = {
    {8, 296, 296, 8, 49152},        // sharedMemPerBlock
    {12, 304, 304, 4, 65536},       // regsPerBlock
    {10, 308, 308, 4, 32},          // warpSize
    {11, 312, 312, 8, 2147483647},  // memPitch
    {1, 320, 320, 4, 1024},         // maxThreadsPerBlock
    {2, 324, 324, 4, 1024},         // maxThreadsDim
    {3, 328, 328, 4, 1024},
    {4, 332, 332, 4, 64},
    {5, 336, 336, 4, 2147483647},  // maxGridSize
    {6, 340, 340, 4, 65535},
    {7, 344, 344, 4, 65535},
    {9, 352, 352, 8, 65536},           // totalConstMem
    {75, 360, 360, 4, COMPUTE_MAJOR},  // major
    {76, 364, 364, 4, COMPUTE_MINOR},  // minor
    {14, 368, 368, 8, 512},            // textureAlignment
    {51, 376, 376, 8, 32},             // texturePitchAlignment
    {16, 388, 384, 4, 108},            // multiProcessorCount
    {19, 400, 392, 4, 1},              // canMapHostMemory
    {30, 568, 552, 8, 512},            // surfaceAlignment
    {31, 576, 560, 4, 1},              // concurrentKernels
    {40, 600, 584, 4, 3},              // asyncEngineCount
    {41, 604, 588, 4, 1},              // unifiedAddressing
    {37, 612, 592, 4, 5120},           // memoryBusWidth
    {38, 616, 596, 4, 41943040},       // l2CacheSize
    {39, 624, 604, 4, 2048},           // maxThreadsPerMultiProcessor
    {78, 628, 608, 4, 1},              // streamPrioritiesSupported
    {81, 640, 624, 8, 167936},         // sharedMemPerMultiprocessor
    {82, 648, 632, 4, 65536},          // regsPerMultiprocessor
    {83, 652, 636, 4, 1},              // managedMemory
    {95, 688, 668, 4, 1},              // cooperativeLaunch
    {97, 696, 672, 8, 166912},         // sharedMemPerBlockOptin
    {106, 712, 688, 4, 32},            // maxBlocksPerMultiProcessor
    {111, 720, 696, 8, 1024},          // reservedSharedMemPerBlock
    {13, 0, 0, 4, 1410000},            // clock rate in kHz
    {102, 0, 0, 4, 1},                 // virtual memory management, which expandable segments need
    {115, 0, 0, 4, 1},                 // memory pools, which the allocator backend cudaMallocAsync needs
};
enum { PROPERTY_COUNT = sizeof PROPERTIES / sizeof *PROPERTIES };

static void store(char *properties, int offset, int bytes, long long value) {
    int narrow = (int)value;
    memcpy(properties + offset, bytes == 8 ? (void *)&value : (void *)&narrow, (size_t)bytes);
}

// The properties that depend on the device or on the settings.
static int describe(char *properties, size_t struct_bytes, int device, int pci_bus_offset) {
    if (device < 0 || device >= devices) return INVALID_DEVICE;
    memset(properties, 0, struct_bytes);
    snprintf(properties, 256, "stand-in for CUDA (sm_%d%d)", COMPUTE_MAJOR, COMPUTE_MINOR);
    properties[256 + 15] = (char)device;  // uuid
    store(properties, 288, 8, (long long)bytes_per_device);
    store(properties, pci_bus_offset, 4, device + 1);
    return SUCCESS;
}

// CUDA 12.
int cudaGetDeviceProperties_v2(char *properties, int device) {
    int error = describe(properties, 1032, device, 584);
    for (int i = 0; error == SUCCESS && i < PROPERTY_COUNT; i++) {
        const struct property *row = &PROPERTIES[i];
        if (row->offset_12) store(properties, row->offset_12, row->bytes, row->value);
    }
    return error;
}

// CUDA 13.
int cudaGetDeviceProperties(char *properties, int device) {
    int error = describe(properties, 1008, device, 568);
    for (int i = 0; error == SUCCESS && i < PROPERTY_COUNT; i++) {
        const struct property *row = &PROPERTIES[i];
        if (row->offset_13) store(properties, row->offset_13, row->bytes, row->value);
    }
    return error;
}

// Attributes that are not in the table are features that the stand-in does not have.
int cudaDeviceGetAttribute(int *value, int attribute, int device) {
    if (device < 0 || device >= devices) return INVALID_DEVICE;
    *value = attribute == 33 ? device + 1 : 0;  // the PCI bus
    for (int i = 0; i < PROPERTY_COUNT; i++) {
        if (PROPERTIES[i].attribute == attribute) *value = (int)PROPERTIES[i].value;
    }
    return SUCCESS;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    return cudaDeviceGetAttribute(value, attribute, device);
}

int cudaDeviceGetPCIBusId(char *text, int length, int device) {
    if (device < 0 || device >= devices) return INVALID_DEVICE;
    snprintf(text, (size_t)length, "0000:%02x:00.0", device + 1);
    return SUCCESS;
}

int cudaDeviceCanAccessPeer(int *can) {
    *can = 0;
    return SUCCESS;
}

UNSUPPORTED(cudaDeviceEnablePeerAccess)

int cudaDriverGetVersion(int *version) {
    *version = CUDA_VERSION;
    return SUCCESS;
}

int cudaRuntimeGetVersion(int *version) {
    *version = CUDA_VERSION;
    return SUCCESS;
}

const char *cudaGetErrorString(int error) {
    switch (error) {
        case SUCCESS: return "no error";
        case INVALID_VALUE: return "invalid argument";
        case OUT_OF_MEMORY: return "out of memory";
        case NO_DEVICE: return "no CUDA-capable device is detected";
        case INVALID_DEVICE: return "invalid device ordinal";
        case NOT_SUPPORTED: return "operation not supported by the stand-in for CUDA";
        default: return "unknown error";
    }
}

const char *cudaGetErrorName(int error) { return cudaGetErrorString(error); }

// Functions return their errors; kernels, whose errors would arrive later, have none.
SUCCEEDS(cudaGetLastError)
SUCCEEDS(cudaPeekAtLastError)
SUCCEEDS(cudaDeviceSynchronize)
SUCCEEDS(cudaProfilerStart)
SUCCEEDS(cudaProfilerStop)
