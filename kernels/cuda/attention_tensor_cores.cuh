// Attention in 16-bit precision: a warp multiplies tiles on tensor cores.
#pragma once
#include "attention.cuh"
#include "tensor_cores.cuh"

// A warp has HEIGHT times 16 rows of numbers of type N; 4 neighbouring lanes share every eighth row, and have each two
// columns of 8. PARTS warps share rows, and have each a part of the width.
template <class N, u32 HEIGHT, u32 SHARING>
struct ByTensorCores {
    static const u32 PARTS = SHARING;
    // Rows that a thread has numbers of, and how many lanes share them.
    static const u32 ROWS = 2 * HEIGHT;
    static const u32 LANES = 4;
    static const u32 WARP_ROWS = 16 * HEIGHT;
    static const u32 TILE_ROWS = TEAM / PARTS * WARP_ROWS;
    // Number of a thread's elements that are contiguous along the width.
    static const u32 TOGETHER = 2;

    __device__ static u32 lane() { return threadIdx.x % WARP; }
    // Which part of the width this warp has.
    __device__ static u32 part() { return threadIdx.x / WARP % PARTS; }
    // The first row that this warp has.
    __device__ static u32 warp_row() { return threadIdx.x / WARP / PARTS * WARP_ROWS; }
    // Where a thread's numbers stand in the tile.
    __device__ static u32 row(u32 i) { return warp_row() + i * 8 + lane() / LANES; }
    __device__ static u32 score_column(u32 j) { return j / 2 * 8 + lane() % LANES * 2 + j % 2; }
    __device__ static u32 width_column(u32 j) { return score_column(j); }

    // A tile of rows to be multiplied, read anew for each product or held in registers.
    template <u32 WIDTH, bool is_held>
    struct Left {
        const T* tile;
        Left16 held[is_held ? WIDTH / 16 : 1][HEIGHT];

        __device__ explicit Left(const T* rows)
            : tile(rows + (warp_row() + lane() % 16) * Line<WIDTH>::length + lane() / 16 * 8) {}

        __device__ Left16 read(u32 step, u32 m) const {
            Left16 left;
            read_matrices<false>(tile + m * 16 * Line<WIDTH>::length + step * 16, left.pair[0], left.pair[1],
                                 left.pair[2], left.pair[3]);
            return left;
        }
        __device__ Left16 at(u32 step, u32 m) const { return is_held ? held[step][m] : read(step, m); }
        __device__ void hold() {
            if constexpr (is_held) {
#pragma unroll
                for (u32 step = 0; step < WIDTH / 16; step++) {
#pragma unroll
                    for (u32 m = 0; m < HEIGHT; m++) {
                        held[step][m] = read(step, m);
                    }
                }
            }
        }
    };

    // sums += left · right, for 16 columns of them from number `j` of a thread's on.
    template <u32 COUNT>
    __device__ static void multiply(Real (&sums)[ROWS][COUNT], const Left16 (&left)[HEIGHT], const Right16& right,
                                    u32 j) {
#pragma unroll
        for (u32 n = 0; n < 2; n++) {
#pragma unroll
            for (u32 m = 0; m < HEIGHT; m++) {
                Tensor<N>::multiply(sums[2 * m][j + 2 * n], sums[2 * m][j + 2 * n + 1], sums[2 * m + 1][j + 2 * n],
                                    sums[2 * m + 1][j + 2 * n + 1], left[m], right.pair[n]);
            }
        }
    }

    // products = left · rightᵀ: rows times columns, along the width.
    template <u32 WIDTH, bool is_held, u32 COUNT>
    __device__ static void multiply_turned(Real (&products)[ROWS][COUNT], const Left<WIDTH, is_held>& left,
                                           const T* right) {
        const T* column = right + (lane() / 16 * 8 + lane() % 8) * Line<WIDTH>::length + lane() / 8 % 2 * 8;
        clear(products);
#pragma unroll
        for (u32 step = 0; step < WIDTH / 16; step++) {
            Left16 l[HEIGHT];
#pragma unroll
            for (u32 m = 0; m < HEIGHT; m++) {
                l[m] = left.at(step, m);
            }
#pragma unroll
            for (u32 j = 0; j < COUNT; j += 4) {
                Right16 r;
                read_matrices<false>(column + j * 4 * Line<WIDTH>::length + step * 16, r.pair[0][0], r.pair[0][1],
                                     r.pair[1][0], r.pair[1][1]);
                multiply(products, l, r, j);
            }
        }
    }

    // sums += weights · right: a part of the width of `right`, which has a row for each column of the weights. They
    // stay in registers, where a product's numbers lie in the order of a left matrix.
    template <u32 WIDTH, u32 COUNT, u32 SUMS>
    __device__ static void multiply_weights(Real (&sums)[ROWS][SUMS], const Real (&weights)[ROWS][COUNT],
                                            const T* right, Real*) {
        const T* first = right + lane() % 16 * Line<WIDTH>::length + lane() / 16 * 8;
        Left16 l[COUNT / 4][HEIGHT];
#pragma unroll
        for (u32 step = 0; step < COUNT / 4; step++) {
#pragma unroll
            for (u32 m = 0; m < HEIGHT; m++) {
#pragma unroll
                for (u32 part = 0; part < 4; part++) {
                    const Real* pair = &weights[2 * m + part % 2][4 * step + part / 2 * 2];
                    l[step][m].pair[part] = Tensor<N>::pair(pair[0], pair[1]);
                }
            }
        }
#pragma unroll
        for (u32 step = 0; step < COUNT / 4; step++) {
#pragma unroll
            for (u32 j = 0; j < SUMS; j += 4) {
                Right16 r;
                read_matrices<true>(first + step * 16 * Line<WIDTH>::length + j * 4, r.pair[0][0], r.pair[0][1],
                                    r.pair[1][0], r.pair[1][1]);
                multiply(sums, l[step], r, j);
            }
        }
    }
};
