// CUDA: what its words mean where a kernel's text is compiled for the host. Stands before every program of kernels.
//
// Templates here name their parameters by words: kernels define T and U as macros.
#pragma once

#define CUDA_ON_CPU 1

#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)
#define __constant__ static
// Blocks run one after another, so that what a block shares can be what the file shares.
#define __shared__ static

#include "launch.h"
#include "fibres.h"
#include "warps.h"
#include "atomics.h"
#include "numbers.h"
#include "maths.h"
