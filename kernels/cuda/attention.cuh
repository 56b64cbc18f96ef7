// Attention: the parts that its kernels share: layouts of rows, masks, tiles of rows in shared memory.
//
// Attention goes by tiles as in Dao: "FlashAttention-2: Faster Attention with Better Parallelism and Work
// Partitioning", 2023. A block has a tile of rows, queries or keys, of one head, and goes over tiles of the others, its
// columns. Scores never leave registers; backward computes them again. No two blocks write the same row, so that sums
// have one order.
//
// How a warp multiplies tiles is told by a type: `ByTensorCores` for 16-bit numbers, `BySplitNumbers` for single
// precision, `ByThreads` for doubles. In all, a few neighbouring lanes share rows, and have each some of their columns.
#pragma once
#include "block.cuh"
#include "copies.cuh"

// Warps of a block.
const u32 TEAM = 4;
const u32 TEAM_THREADS = TEAM * WARP;

// Number of elements in 16 bytes.
const u32 CHUNK = 16 / sizeof(T);
typedef Pack<T, CHUNK> Chunk;

// Rows of [batch, heads, places], each of numbers that lie one after another; strides are in elements.
template <class N>
struct Rows {
    N* first;
    u64 batch;
    u64 head;
    u64 place;

    __device__ N* at(u64 of_batch, u64 of_head, u64 of_place) const {
        return first + of_batch * batch + of_head * head + of_place * place;
    }
};

// The sizes and settings of an attention.
struct Sight {
    u64 batches;
    // Heads of queries, and how many of them share a head of keys.
    u32 heads;
    u32 heads_a_key;
    // Queries and keys of a head, and numbers of a row.
    u32 places;
    u32 keys;
    u32 width;
    // Whether a query sees only keys up to its own place.
    u32 is_causal;
    // Whether all rows begin at multiples of 16 bytes and have as many.
    u32 is_wide;
    // Among how many blocks the heads are divided that look at a tile of keys.
    u32 parts;
    // The share of the launch's first block.
    u64 first_share;
    f64 scale;

    // Number of keys that a query attends to.
    __device__ u32 seen(u32 query) const { return is_causal && query < keys ? query + 1 : keys; }
};

// A block's share: a tile of one head's rows.
struct Share {
    u64 batch;
    u32 head;
    u32 tile;
};

// Share number `index`; tiles change slowest, so that the largest shares come first.
__device__ inline Share share_of(u64 index, u64 batches, u32 heads) {
    u64 row = index / heads;
    return Share{row % batches, (u32)(index % heads), (u32)(row / batches)};
}

// The share of this block of a kernel that goes over tiles of queries. The last tiles see the most keys.
__device__ inline Share share_of_queries(const Sight& sight, u32 tile_rows) {
    Share share = share_of(sight.first_share + blockIdx.x, sight.batches, sight.heads);
    share.tile = (sight.places - 1) / tile_rows - share.tile;
    return share;
}

// Where a row of a part of the gradients of keys waits to be added to the others, or, with `which` 1, of values.
__device__ inline Real* waiting_row(Real* waiting, const Sight& sight, const Share& share, u32 part, u32 which,
                                    u32 place) {
    u64 heads = sight.heads / sight.heads_a_key, row = (share.batch * heads + share.head) * sight.keys + place;
    return waiting + ((part * 2 + which) * sight.batches * heads * sight.keys + row) * sight.width;
}

// The least power of two that is not less.
__device__ constexpr u32 power_above(u32 number) { return number <= 1 ? 1 : 2 * power_above((number + 1) / 2); }

// From one row of a tile to the next: 16 bytes more than its numbers, so that neighbours lie in other banks.
template <u32 WIDTH>
struct Line {
    static const u32 length = WIDTH + CHUNK;
};

// Begins to fetch the first `count` of ROWS rows of at most WIDTH numbers into a tile, and fills the rest with zeros.
template <u32 ROWS, u32 WIDTH>
__device__ inline void fetch(T* tile, const T* rows, u64 stride, u32 count, const Sight& sight) {
    if (sight.is_wide) {
        // So many neighbouring threads share a row, some of them idle, so that none divides.
        const u32 lanes = power_above(WIDTH / CHUNK), rows_at_once = TEAM_THREADS / lanes;
        static_assert(ROWS % rows_at_once == 0, "threads fetch as many rows each");
        u32 row = threadIdx.x / lanes, column = threadIdx.x % lanes * CHUNK;
        if (column >= WIDTH) {
            return;
        }
        const T* from = rows + row * stride + column;
        T* to = tile + row * Line<WIDTH>::length + column;
        u32 reach = column < sight.width ? count : 0;
#pragma unroll
        for (u32 i = 0; i < ROWS / rows_at_once; i++) {
            bool is_there = row + i * rows_at_once < reach;
            copy_later<16>(to + i * rows_at_once * Line<WIDTH>::length, is_there ? from : rows, is_there);
            from += rows_at_once * stride;
        }
        return;
    }
    for (u32 index = threadIdx.x; index < ROWS * WIDTH; index += TEAM_THREADS) {
        u32 row = index / WIDTH, column = index % WIDTH;
        bool is_there = row < count && column < sight.width;
        tile[row * Line<WIDTH>::length + column] = is_there ? rows[row * stride + column] : T();
    }
}

template <u32 ROWS, u32 COUNT>
__device__ inline void clear(Real (&numbers)[ROWS][COUNT]) {
#pragma unroll
    for (u32 i = 0; i < ROWS; i++) {
#pragma unroll
        for (u32 j = 0; j < COUNT; j++) {
            numbers[i][j] = Real(0);
        }
    }
}

// Writes `factor` times what this thread has of a row, from column `first` on.
template <class Warps, u32 COUNT, class N>
__device__ inline void write_row(N* row, const Real (&numbers)[COUNT], Real factor, const Sight& sight, u32 first) {
    const u32 together = Warps::TOGETHER;
    typedef Pack<N, together> Piece;
#pragma unroll
    for (u32 j = 0; j < COUNT; j += together) {
        u32 column = first + Warps::width_column(j);
        if (column >= sight.width) {
            continue;
        }
        Piece piece;
#pragma unroll
        for (u32 k = 0; k < together; k++) {
            piece.element[k] = store<N>(numbers[j + k] * factor);
        }
        if (sight.is_wide) {
            *(Piece*)(row + column) = piece;
            continue;
        }
        for (u32 k = 0; k < together && column + k < sight.width; k++) {
            row[column + k] = piece.element[k];
        }
    }
}

const f64 LOG2_E = 1.4426950408889634;
__device__ inline f32 infinity() { return of_bits(0x7f800000u); }

__device__ inline f64 power_of_two(f64 x) { return exp2(x); }
__device__ inline f32 power_of_two(f32 x) {
#ifdef CUDA_ON_CPU
    return exp2f(x);
#else
    f32 y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

// The fold of a row's numbers over the lanes that share it, which all get it.
template <class Fold, u32 LANES, class R>
__device__ inline R fold_lanes(R value) {
#pragma unroll
    for (u32 distance = LANES / 2; distance > 0; distance /= 2) {
        value = Fold::of(value, __shfl_xor_sync(ALL_LANES, value, distance));
    }
    return value;
}
