// Parts: partial results of the blocks of one kernel, which the single block of the next combines in order, so that a
// reduction of any length is deterministic.
#pragma once
#include "block.cuh"

// The fold of every `stride`-th of `count` parts and of `start`, for all threads of a block.
template <class Fold>
__device__ inline f64 fold_parts(const f64* parts, u32 count, u32 stride, f64 start) {
    f64 all = start;
    for (u32 part = threadIdx.x; part < count; part += THREADS) {
        all = Fold::of(all, parts[(u64)part * stride]);
    }
    return fold_block<Fold>(all);
}
