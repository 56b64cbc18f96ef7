// Attention in double precision: the threads of a warp multiply tiles, each with its own elements.
#pragma once
#include "attention.cuh"

// Eight neighbouring lanes share a row, of which each has every eighth column of scores, and of every 8 chunks along
// the width one. The lanes therefore read from different banks at a time.
struct ByThreads {
    // Each warp has its own rows.
    static const u32 PARTS = 1;
    // Rows that a thread has numbers of, and how many lanes share them.
    static const u32 ROWS = 1;
    static const u32 LANES = 8;
    static const u32 WARP_ROWS = WARP / LANES;
    static const u32 TILE_ROWS = TEAM * WARP_ROWS;
    // Number of a thread's elements that are contiguous along the width.
    static const u32 TOGETHER = CHUNK;

    __device__ static u32 lane() { return threadIdx.x % LANES; }
    __device__ static u32 part() { return 0; }
    // The first row that this warp has.
    __device__ static u32 warp_row() { return threadIdx.x / WARP * WARP_ROWS; }
    // Where a thread's numbers stand in the tile.
    __device__ static u32 row(u32) { return threadIdx.x / LANES; }
    __device__ static u32 score_column(u32 j) { return lane() + j * LANES; }
    __device__ static u32 width_column(u32 j) { return (j / CHUNK * LANES + lane()) * CHUNK + j % CHUNK; }

    // A tile of rows to be multiplied.
    template <u32 WIDTH, bool is_held>
    struct Left {
        const T* tile;

        __device__ explicit Left(const T* rows) : tile(rows + row(0) * Line<WIDTH>::length) {}
        __device__ void hold() {}
    };

    // products = left · rightᵀ: rows times columns, along the width.
    template <u32 WIDTH, bool is_held, u32 COUNT>
    __device__ static void multiply_turned(Real (&products)[ROWS][COUNT], const Left<WIDTH, is_held>& left,
                                           const T* right) {
        const T* column = right + lane() * Line<WIDTH>::length;
        clear(products);
#pragma unroll 2
        for (u32 place = 0; place < WIDTH; place += CHUNK) {
            Chunk l = *(const Chunk*)(left.tile + place);
#pragma unroll
            for (u32 j = 0; j < COUNT; j++) {
                Chunk r = *(const Chunk*)(column + j * LANES * Line<WIDTH>::length + place);
#pragma unroll
                for (u32 k = 0; k < CHUNK; k++) {
                    products[0][j] += load(l.element[k]) * load(r.element[k]);
                }
            }
        }
    }

    // sums += weights · right: a part of the width of `right`, which has a row for each column of the weights. The
    // lanes of a warp show one another weights; the block waits between two calls, so that nobody still reads those
    // before.
    template <u32 WIDTH, u32 COUNT, u32 SUMS>
    __device__ static void multiply_weights(Real (&sums)[ROWS][SUMS], const Real (&weights)[ROWS][COUNT],
                                            const T* right, Real* shown) {
        Real* own = shown + row(0) * (COUNT * LANES + 8);
#pragma unroll
        for (u32 j = 0; j < COUNT; j++) {
            own[score_column(j)] = weights[0][j];
        }
        __syncwarp();
        const T* first = right + lane() * CHUNK;
#pragma unroll 2
        for (u32 line = 0; line < COUNT * LANES; line += CHUNK) {
            Chunk l = *(const Chunk*)(own + line);
#pragma unroll
            for (u32 k = 0; k < CHUNK; k++) {
#pragma unroll
                for (u32 j = 0; j < SUMS; j += CHUNK) {
                    Chunk r = *(const Chunk*)(first + (line + k) * Line<WIDTH>::length + j * LANES);
#pragma unroll
                    for (u32 m = 0; m < CHUNK; m++) {
                        sums[0][j + m] += load(l.element[k]) * load(r.element[m]);
                    }
                }
            }
        }
    }
};
