// Buckets: groups the things that are added to the same place, in their order, without sorting all of them.
//
// Each thing has a key: the place that it goes to. Keys are spread over buckets by a hash, and each block looks after
// one bucket. It walks along the buckets of all things, keeps those that are its own, and takes them in windows of up
// to THREADS, sorted by key. All that goes to one place is in one bucket, whose windows come in the things' order: sums
// are made in that order, always the same, without atomics. As many blocks as buckets walk along 2 bytes for each
// thing, most of which come from the cache: with 1024 buckets that is as much as a row of 1024 halves for each thing,
// so that the cost stays in proportion to the number of things, whatever the keys. Where all keys are equal, one block
// does all the work.
#pragma once
#include "prefix.cuh"

typedef unsigned short u16;

const u16 NO_BUCKET = 0xffff;
// Things that a thread looks at together, and a block.
const u32 LOOK = 8;
const u32 LOOKS = LOOK * THREADS;

// The bucket of a key, of `buckets`: a power of two up to 2^15.
__device__ inline u16 bucket_of(u64 key, u32 buckets) {
    return (u16)((key * 0x9e3779b97f4a7c15ull >> 49) & (buckets - 1));
}

// Things of a window, sorted by key; of those with equal keys, the first first.
struct Sorted {
    u64 keys[THREADS];
    u32 things[THREADS];
};

// Each thread below `count` brings its thing and key; they are sorted when all return. Gives where this thread's went.
// Every thread of the block takes part.
__device__ inline u32 sort_window(Sorted& sorted, u32 count, u32 thing, u64 key) {
    __shared__ u64 keys[THREADS];
    u32 own = threadIdx.x, rank = 0;
    __syncthreads();
    keys[own] = key;
    __syncthreads();
    if (own < count) {
        for (u32 other = 0; other < count; other++) {
            rank += keys[other] < key || (keys[other] == key && other < own);
        }
        sorted.keys[rank] = key;
        sorted.things[rank] = thing;
    }
    __syncthreads();
    return rank;
}

// The end of the run of equal keys that begins at `start`; `start` itself where none begins there.
__device__ inline u32 end_of_run(const Sorted& sorted, u32 count, u32 start) {
    if (start >= count || (start > 0 && sorted.keys[start - 1] == sorted.keys[start])) {
        return start;
    }
    u32 end = start + 1;
    while (end < count && sorted.keys[end] == sorted.keys[start]) {
        end++;
    }
    return end;
}

// The buckets of LOOK things from `at` on: those that were written before, or, where they were not, those that `bucket`
// finds.
template <class Bucket>
__device__ inline Pack<u16, LOOK> look(const u16* buckets, u64 count, u64 at, Bucket bucket) {
    Pack<u16, LOOK> seen;
    if (buckets && at + LOOK <= count) {
        return *(const Pack<u16, LOOK>*)(buckets + at);
    }
    for (u32 k = 0; k < LOOK; k++) {
        u64 thing = at + k;
        seen.element[k] = thing >= count ? NO_BUCKET : buckets ? buckets[thing] : bucket(thing);
    }
    return seen;
}

// Calls `take(things, number)` for each window of bucket `own`, with the numbers of its things in ascending order, in
// memory of the block. `buckets`, aligned to 16 bytes, has the bucket of each of less than 2^32 things; without it,
// `bucket(thing)` is asked in every block, which takes longer. Every thread of a block of THREADS takes part, in `take`
// too.
template <class Bucket, class Take>
__device__ inline void each_window(const u16* buckets, u64 count, u16 own, Bucket bucket, Take take) {
    __shared__ u32 things[THREADS + LOOKS];
    u32 held = 0;
    Pack<u16, LOOK> next = look(buckets, count, threadIdx.x * LOOK, bucket);
    for (u64 first = 0; first < count; first += LOOKS) {
        u64 at = first + threadIdx.x * LOOK;
        Pack<u16, LOOK> seen = next;
        next = look(buckets, count, at + LOOKS, bucket);
        u32 found = 0;
        for (u32 k = 0; k < LOOK; k++) {
            found += seen.element[k] == own;
        }
        Before<u32> before = sum_before(found);
        u32 place = held + before.sum;
        for (u32 k = 0; k < LOOK && found > 0; k++) {
            if (seen.element[k] == own) {
                things[place] = (u32)(at + k);
                place++;
            }
        }
        held += before.all;
        if (held < THREADS) {
            continue;
        }
        __syncthreads();
        u32 done = 0;
        for (; held - done >= THREADS; done += THREADS) {
            take(things + done, THREADS);
        }
        held -= done;
        u32 kept = threadIdx.x < held ? things[done + threadIdx.x] : 0;
        __syncthreads();
        if (threadIdx.x < held) {
            things[threadIdx.x] = kept;
        }
    }
    __syncthreads();
    if (held > 0) {
        take(things, held);
    }
}
