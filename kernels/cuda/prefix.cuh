// Prefix: reductions over all preceding threads.
#pragma once
#include "block.cuh"

// The inclusive prefix reduction over the lanes of a warp, in their order. Every lane takes part.
template <class Fold, class R>
__device__ inline R fold_upto(R value) {
    u32 lane = threadIdx.x % WARP;
    for (u32 distance = 1; distance < WARP; distance *= 2) {
        R other = __shfl_up_sync(ALL_LANES, value, distance);
        value = lane >= distance ? Fold::of(other, value) : value;
    }
    return value;
}

// The sums over the threads before this one, and over all threads of the block.
template <class R>
struct Before {
    R sum;
    R all;
};

// Every thread of a block of THREADS takes part.
template <class R>
__device__ inline Before<R> sum_before(R value) {
    __shared__ R of_warp[THREADS / WARP];
    u32 lane = threadIdx.x % WARP, own = threadIdx.x / WARP;
    R upto = fold_upto<Sum>(value);
    R previous = __shfl_up_sync(ALL_LANES, upto, 1);
    __syncthreads();
    if (lane == WARP - 1) {
        of_warp[own] = upto;
    }
    __syncthreads();
    Before<R> before = {R(0), R(0)};
    for (u32 warp = 0; warp < THREADS / WARP; warp++) {
        before.sum = warp == own ? before.all : before.sum;
        before.all += of_warp[warp];
    }
    before.sum += lane == 0 ? R(0) : previous;
    return before;
}
