// Copies: asynchronous copies from global to shared memory.
#pragma once
#include "number.cuh"

#ifdef CUDA_ON_CPU
// Here a copy is made only when it is waited for, so that whoever reads too early finds what lay there before.
struct Copy {
    u8* to;
    const u8* from;
    u32 bytes;
};
const u32 MOST_COPIES = 256;
static Copy copies_of[1024][MOST_COPIES];
static u32 copy_counts[1024];
#endif

// Begins to copy 4, 8 or 16 bytes, both at multiples of as many; zeros where there is nothing to copy.
template <u32 bytes>
__device__ inline void copy_later(void* to, const void* from, bool is_there) {
    static_assert(bytes == 4 || bytes == 8 || bytes == 16, "copies have one of three sizes");
#ifdef CUDA_ON_CPU
    u32 number = copy_counts[threadIdx.x]++;
    if (number >= MOST_COPIES || ((u64)to | (u64)from) % bytes != 0) {
        __builtin_trap();
    }
    copies_of[threadIdx.x][number] = Copy{(u8*)to, is_there ? (const u8*)from : nullptr, bytes};
#else
    u32 place = (u32)__cvta_generic_to_shared(to);
    u32 read = is_there ? bytes : 0;
    // Sixteen bytes go past the first cache: only shared memory needs them.
    if constexpr (bytes == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(from), "r"(read));
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(place), "l"(from), "n"(bytes), "r"(read));
    }
#endif
}

// Waits for all copies that this thread began. What other threads copied is there after a barrier.
__device__ inline void wait_for_copies() {
#ifdef CUDA_ON_CPU
    for (u32 number = 0; number < copy_counts[threadIdx.x]; number++) {
        Copy copy = copies_of[threadIdx.x][number];
        for (u32 byte = 0; byte < copy.bytes; byte++) {
            copy.to[byte] = copy.from == nullptr ? 0 : copy.from[byte];
        }
    }
    copy_counts[threadIdx.x] = 0;
#else
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}
