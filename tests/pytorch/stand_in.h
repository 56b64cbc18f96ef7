// Declarations shared by the files of the stand-in: error codes, devices, ranges of memory, functions without effect.
//
// Functions declare no parameters after the last one that they use: the calling conventions of x86-64 and AArch64 let a
// function ignore the other arguments.
#ifndef STAND_IN_H
#define STAND_IN_H

#include <stddef.h>
#include <stdint.h>

// Error codes, which the runtime and the driver share.
enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_DEVICE = 101, NOT_SUPPORTED = 801 };

// The version of CUDA that the stand-in reports, and the compute capability of its devices (8.0: an A100).
// PyTorch requires a driver at least as new as its own runtime; a newer one is fine.
enum { CUDA_VERSION = 13020, COMPUTE_MAJOR = 8, COMPUTE_MINOR = 0, MOST_DEVICES = 64 };

// Of device.c. The library is preloaded, so functions that are not CUDA's must be hidden from other libraries.
#define HIDDEN __attribute__((visibility("hidden")))
HIDDEN int device_count(void);
HIDDEN int current_device(void);
HIDDEN size_t device_bytes(void);

// A new handle, never null, for a stream, an event or a library's object; nothing looks behind it.
HIDDEN void *new_handle(void);

// A function that only succeeds.
#define SUCCEEDS(name) \
    int name(void) { return SUCCESS; }

// A function that a program may call, but that the stand-in does not cover: PyTorch raises an error with this code.
#define UNSUPPORTED(name) \
    int name(void) { return NOT_SUPPORTED; }

// A function that stores a new handle at its first argument.
#define CREATES(name)         \
    int name(void **handle) { \
        *handle = new_handle(); \
        return SUCCESS;       \
    }

#endif
