// Block: operations of all threads of a block together.
#pragma once
#include "number.cuh"

const u32 THREADS = 256;
const u32 WARP = 32;
const u32 ALL_LANES = 0xffffffffu;

struct Sum {
    template <class R>
    __device__ static R of(R a, R b) {
        return a + b;
    }
};

// The larger number, or NaN if either is NaN.
struct Largest {
    template <class R>
    __device__ static R of(R a, R b) {
        return a > b || a != a ? a : b;
    }
};

// All lanes of a warp get the fold of all their values.
template <class Fold, class R>
__device__ inline R fold_warp(R value) {
    for (u32 distance = WARP / 2; distance > 0; distance /= 2) {
        value = Fold::of(value, __shfl_xor_sync(ALL_LANES, value, distance));
    }
    return value;
}

// All threads of a block of THREADS get the fold of all their values. Every thread of the block takes part.
template <class Fold, class R>
__device__ inline R fold_block(R value) {
    __shared__ R of_warp[THREADS / WARP];
    value = fold_warp<Fold>(value);
    __syncthreads();
    if (threadIdx.x % WARP == 0) {
        of_warp[threadIdx.x / WARP] = value;
    }
    __syncthreads();
    R all = of_warp[0];
    for (u32 warp = 1; warp < THREADS / WARP; warp++) {
        all = Fold::of(all, of_warp[warp]);
    }
    return all;
}

// An error that a kernel finds: an index outside of a table of `size` rows. The host looks when it waits.
struct Fault {
    volatile i64 is_set;
    volatile i64 index;
    volatile i64 size;
};

__device__ inline void tell(Fault* fault, i64 index, i64 size) {
    // The first to come tells: two could mix their words.
    if (atomicCAS((unsigned long long*)&fault->is_set, 0ull, 2ull) == 0ull) {
        fault->index = index;
        fault->size = size;
        __threadfence_system();
        fault->is_set = 1;
    }
}
