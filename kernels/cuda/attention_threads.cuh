// Attention by threads: how a warp multiplies tiles of single or double precision, each thread with numbers of its own.
#pragma once
#include "attention.cuh"

// Eight neighbouring lanes share HEIGHT rows, of which each has every eighth column of scores, and of every 8 chunks
// along the width one. So what the lanes read at a time lies in different banks.
template <u32 HEIGHT>
struct ByThreads {
    // Each warp has rows of its own.
    static const u32 PARTS = 1;
    // Rows that a thread has numbers of, and how many lanes share them.
    static const u32 ROWS = HEIGHT;
    static const u32 LANES = 8;
    static const u32 WARP_ROWS = WARP / LANES * ROWS;
    static const u32 TILE_ROWS = TEAM * WARP_ROWS;
    // How many of a thread's numbers lie together along the width.
    static const u32 TOGETHER = CHUNK;

    __device__ static u32 lane() { return threadIdx.x % LANES; }
    __device__ static u32 part() { return 0; }
    // The first row that this warp has, and this thread.
    __device__ static u32 warp_row() { return threadIdx.x / WARP * WARP_ROWS; }
    __device__ static u32 first_row() { return warp_row() + threadIdx.x % WARP / LANES; }
    // Where a thread's numbers stand in the tile.
    __device__ static u32 row(u32 i) { return first_row() + i * (WARP / LANES); }
    __device__ static u32 score_column(u32 j) { return lane() + j * LANES; }
    __device__ static u32 width_column(u32 j) { return (j / CHUNK * LANES + lane()) * CHUNK + j % CHUNK; }

    // A warp's place to show its lanes weights of COLUMNS columns.
    template <u32 COLUMNS>
    struct Shown {
        static const u32 line = COLUMNS + 8;
    };

    // A tile of rows to be multiplied.
    template <u32 WIDTH, bool is_held>
    struct Left {
        const T* tile;

        __device__ explicit Left(const T* rows) : tile(rows + first_row() * Line<WIDTH>::length) {}
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
            Chunk l[ROWS];
#pragma unroll
            for (u32 i = 0; i < ROWS; i++) {
                l[i] = *(const Chunk*)(left.tile + i * (WARP / LANES) * Line<WIDTH>::length + place);
            }
#pragma unroll
            for (u32 j = 0; j < COUNT; j++) {
                Chunk r = *(const Chunk*)(column + j * LANES * Line<WIDTH>::length + place);
#pragma unroll
                for (u32 k = 0; k < CHUNK; k++) {
#pragma unroll
                    for (u32 i = 0; i < ROWS; i++) {
                        products[i][j] += load(l[i].element[k]) * load(r.element[k]);
                    }
                }
            }
        }
    }

    // sums += weights · right: a part of the width of `right`, which has a row for each column of the weights. The
    // block waits between two calls, so that nobody still reads the weights before.
    template <u32 WIDTH, u32 COUNT, u32 SUMS>
    __device__ static void multiply_weights(Real (&sums)[ROWS][SUMS], const Real (&weights)[ROWS][COUNT],
                                            const T* right, Real* shown) {
        const u32 line = Shown<COUNT * LANES>::line;
        Real* own = shown + (threadIdx.x / WARP * WARP_ROWS + threadIdx.x % WARP / LANES) * line;
#pragma unroll
        for (u32 i = 0; i < ROWS; i++) {
#pragma unroll
            for (u32 j = 0; j < COUNT; j++) {
                own[i * (WARP / LANES) * line + score_column(j)] = weights[i][j];
            }
        }
        __syncwarp();
        const T* first = right + lane() * CHUNK;
#pragma unroll 2
        for (u32 row = 0; row < COUNT * LANES; row += CHUNK) {
            Chunk l[ROWS];
#pragma unroll
            for (u32 i = 0; i < ROWS; i++) {
                l[i] = *(const Chunk*)(own + i * (WARP / LANES) * line + row);
            }
#pragma unroll
            for (u32 k = 0; k < CHUNK; k++) {
#pragma unroll
                for (u32 j = 0; j < SUMS; j += CHUNK) {
                    Chunk r = *(const Chunk*)(first + (row + k) * Line<WIDTH>::length + j * LANES);
#pragma unroll
                    for (u32 m = 0; m < CHUNK; m++) {
#pragma unroll
                        for (u32 i = 0; i < ROWS; i++) {
                            sums[i][j + m] += load(l[i].element[k]) * load(r.element[m]);
                        }
                    }
                }
            }
        }
    }
};
