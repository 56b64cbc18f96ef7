// Memory: an allocation reserves addresses without memory behind them, and counts towards the device's total.
// PyTorch's caching allocator calls this through cudaMalloc, or through cuMem* with expandable segments.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "stand_in.h"

// CUDA allocates device memory in pages of 2 MiB.
static const size_t PAGE_BYTES = 2 << 20;

// The values of cudaMemoryType.
enum memory { UNREGISTERED = 0, PINNED = 1, DEVICE = 2 };

struct range {
    struct range *next;
    char *start;
    size_t bytes;
    enum memory memory;
    int device;
};

// One lock for the list of ranges and the totals.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct range *ranges;
static size_t used_bytes[MOST_DEVICES];

static int add_range(void *start, size_t bytes, enum memory memory, int device) {
    struct range *range = malloc(sizeof *range);
    if (range == NULL) return OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    *range = (struct range){ranges, start, bytes, memory, device};
    ranges = range;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

// Removes the range that starts at `start` and returns it in `removed`.
static int remove_range(void *start, enum memory memory, struct range *removed) {
    int error = INVALID_VALUE;
    pthread_mutex_lock(&lock);
    for (struct range **at = &ranges; *at != NULL; at = &(*at)->next) {
        struct range *range = *at;
        if (range->start != start || range->memory != memory) continue;
        *removed = *range;
        *at = range->next;
        free(range);
        error = SUCCESS;
        break;
    }
    pthread_mutex_unlock(&lock);
    return error;
}

// The range that contains an address. For other host memory, a range of no bytes.
static struct range range_of(const void *address) {
    struct range found = {.memory = UNREGISTERED, .device = -2};  // -2: cudaInvalidDeviceId
    pthread_mutex_lock(&lock);
    for (struct range *range = ranges; range != NULL; range = range->next) {
        size_t offset = (size_t)((const char *)address - range->start);
        if (offset < range->bytes) {
            found = *range;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static int on_device(const void *address) { return range_of(address).memory == DEVICE; }

static int count_used(int device, size_t bytes) {
    int error = SUCCESS;
    pthread_mutex_lock(&lock);
    if (bytes > device_bytes() - used_bytes[device]) {
        error = OUT_OF_MEMORY;
    } else {
        used_bytes[device] += bytes;
    }
    pthread_mutex_unlock(&lock);
    return error;
}

static void count_freed(int device, size_t bytes) {
    pthread_mutex_lock(&lock);
    used_bytes[device] -= bytes;
    pthread_mutex_unlock(&lock);
}

// Reserves addresses that start at a multiple of `alignment`; null if there are none. Access to them is an error, so
// that a program that uses device memory on the host fails as it would on a GPU.
static char *reserve_addresses(size_t bytes, size_t alignment) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *start = mmap(NULL, bytes + alignment, PROT_NONE, flags, -1, 0);
    if (start == MAP_FAILED) return NULL;
    size_t before = (alignment - (uintptr_t)start % alignment) % alignment;
    if (before > 0) munmap(start, before);
    munmap(start + before + bytes, alignment - before);
    return start + before;
}

static int add_device_range(void **start, size_t bytes, size_t alignment) {
    *start = reserve_addresses(bytes, alignment);
    if (*start == NULL) return OUT_OF_MEMORY;
    int error = add_range(*start, bytes, DEVICE, current_device());
    if (error != SUCCESS) munmap(*start, bytes);
    return error;
}

int cudaMalloc(void **address, size_t bytes) {
    *address = NULL;
    if (bytes == 0) return SUCCESS;
    if (bytes > device_bytes()) return OUT_OF_MEMORY;
    int device = current_device();
    size_t page_bytes = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    int error = count_used(device, page_bytes);
    if (error != SUCCESS) return error;
    error = add_device_range(address, page_bytes, PAGE_BYTES);
    if (error != SUCCESS) count_freed(device, page_bytes);
    return error;
}

int cudaFree(void *address) {
    if (address == NULL) return SUCCESS;
    struct range range;
    int error = remove_range(address, DEVICE, &range);
    if (error != SUCCESS) return error;
    count_freed(range.device, range.bytes);
    munmap(range.start, range.bytes);
    return SUCCESS;
}

int cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    pthread_mutex_lock(&lock);
    *free_bytes = device_bytes() - used_bytes[current_device()];
    pthread_mutex_unlock(&lock);
    *total_bytes = device_bytes();
    return SUCCESS;
}

// The allocator backend cudaMallocAsync. Work on a stream is complete at once, so a pool has nothing to keep.

int cudaMallocAsync(void **address, size_t bytes) { return cudaMalloc(address, bytes); }

int cudaFreeAsync(void *address) { return cudaFree(address); }

int cudaDeviceGetDefaultMemPool(void **pool, int device) {
    *pool = (void *)(uintptr_t)(device + 1);
    return SUCCESS;
}

// Attributes up to 3 are ints that switch reuse on or off; the others are totals in bytes.
int cudaMemPoolGetAttribute(void *pool, int attribute, void *value) {
    int device = (int)(uintptr_t)pool - 1;
    pthread_mutex_lock(&lock);
    uint64_t bytes = used_bytes[device];
    pthread_mutex_unlock(&lock);
    if (attribute > 3) memcpy(value, &bytes, sizeof bytes);
    else memset(value, 0, sizeof(int));
    return SUCCESS;
}

SUCCEEDS(cudaMemPoolSetAttribute)
SUCCEEDS(cudaMemPoolSetAccess)
SUCCEEDS(cudaMemPoolTrimTo)

// Virtual memory management, for expandable segments: addresses are reserved once, and memory is mapped to them later.

int cuMemAddressReserve(void **start, size_t bytes, size_t alignment) {
    return add_device_range(start, bytes, alignment > PAGE_BYTES ? alignment : PAGE_BYTES);
}

int cuMemAddressFree(void *start, size_t bytes) {
    struct range range;
    int error = remove_range(start, DEVICE, &range);
    if (error == SUCCESS) munmap(start, bytes);
    return error;
}

// Memory of a device without addresses: a handle of cuMemCreate.
struct physical {
    size_t bytes;
    int device;
};

// The device is the fourth of CUmemAllocationProp's ints, after the type, the handle type and the kind of location.
int cuMemCreate(struct physical **handle, size_t bytes, const int *properties) {
    int device = properties[3];
    if (device < 0 || device >= device_count()) return INVALID_DEVICE;
    struct physical *physical = malloc(sizeof *physical);
    if (physical == NULL || count_used(device, bytes) != SUCCESS) {
        free(physical);
        return OUT_OF_MEMORY;
    }
    *physical = (struct physical){bytes, device};
    *handle = physical;
    return SUCCESS;
}

// PyTorch unmaps memory before it releases it, so mappings need not be counted.
int cuMemRelease(struct physical *handle) {
    count_freed(handle->device, handle->bytes);
    free(handle);
    return SUCCESS;
}

int cuMemGetAllocationGranularity(size_t *bytes) {
    *bytes = PAGE_BYTES;
    return SUCCESS;
}

int cuMemGetAddressRange(void **start, size_t *bytes, const void *address) {
    struct range range = range_of(address);
    if (range.memory != DEVICE) return INVALID_VALUE;
    *start = range.start;
    *bytes = range.bytes;
    return SUCCESS;
}

SUCCEEDS(cuMemMap)
SUCCEEDS(cuMemUnmap)
SUCCEEDS(cuMemSetAccess)
SUCCEEDS(cuMemsetD32Async)

// Memory shared between processes or devices.
UNSUPPORTED(cuMemExportToShareableHandle)
UNSUPPORTED(cuMemImportFromShareableHandle)
UNSUPPORTED(cuMemRetainAllocationHandle)
UNSUPPORTED(cuMemGetAllocationPropertiesFromHandle)
UNSUPPORTED(cuMulticastCreate)
UNSUPPORTED(cuMulticastAddDevice)
UNSUPPORTED(cuMulticastBindMem)
UNSUPPORTED(cuMulticastUnbind)
UNSUPPORTED(cudaIpcGetMemHandle)
UNSUPPORTED(cudaIpcOpenMemHandle)
UNSUPPORTED(cudaIpcCloseMemHandle)

// Pinned host memory, which is real.

int cudaHostAlloc(void **address, size_t bytes) {
    if (posix_memalign(address, 4096, bytes > 0 ? bytes : 1) != 0) return OUT_OF_MEMORY;
    int error = add_range(*address, bytes, PINNED, current_device());
    if (error != SUCCESS) free(*address);
    return error;
}

int cudaFreeHost(void *address) {
    struct range range;
    if (address == NULL) return SUCCESS;
    int error = remove_range(address, PINNED, &range);
    if (error == SUCCESS) free(address);
    return error;
}

int cudaHostRegister(void *address, size_t bytes) { return add_range(address, bytes, PINNED, current_device()); }

int cudaHostUnregister(void *address) {
    struct range range;
    return remove_range(address, PINNED, &range);
}

int cudaHostGetDevicePointer(void **device_address, void *address) {
    *device_address = address;
    return SUCCESS;
}

// The fields of cudaPointerAttributes; CUDA 13 reserves more behind them.
struct pointer_attributes {
    int memory, device;
    const void *device_address, *host_address;
};

int cudaPointerGetAttributes(struct pointer_attributes *attributes, const void *address) {
    struct range range = range_of(address);
    attributes->memory = range.memory;
    attributes->device = range.device;
    attributes->device_address = range.memory == UNREGISTERED ? NULL : address;
    attributes->host_address = range.memory == DEVICE ? NULL : address;
    return SUCCESS;
}

// Copies: to a device they do nothing, from a device they give zeros.

int cudaMemcpy(void *to, const void *from, size_t bytes) {
    if (on_device(to)) return SUCCESS;
    if (on_device(from)) memset(to, 0, bytes);
    else memcpy(to, from, bytes);
    return SUCCESS;
}

int cudaMemcpyAsync(void *to, const void *from, size_t bytes) { return cudaMemcpy(to, from, bytes); }

int cudaMemcpy2DAsync(char *to, size_t to_pitch, const char *from, size_t from_pitch, size_t width, size_t height) {
    for (size_t row = 0; row < height; row++) cudaMemcpy(to + row * to_pitch, from + row * from_pitch, width);
    return SUCCESS;
}

int cudaMemset(void *to, int value, size_t bytes) {
    if (!on_device(to)) memset(to, value, bytes);
    return SUCCESS;
}

int cudaMemsetAsync(void *to, int value, size_t bytes) { return cudaMemset(to, value, bytes); }

SUCCEEDS(cudaMemcpyPeerAsync)
SUCCEEDS(cudaMemcpyToSymbol)
