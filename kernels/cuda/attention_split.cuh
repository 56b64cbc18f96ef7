// Attention by split numbers: how a warp multiplies tiles of single precision on tensor cores.
#pragma once
#include "attention.cuh"
#include "split_numbers.cuh"

// A warp has HEIGHT times 16 rows; 4 neighbouring lanes share every eighth row, and have each two columns of 8. PARTS
// warps share rows, and have each a part of the width.
template <u32 HEIGHT, u32 SHARING>
struct BySplitNumbers {
    static const u32 PARTS = SHARING;
    // Rows that a thread has numbers of, and how many lanes share them.
    static const u32 ROWS = 2 * HEIGHT;
    static const u32 LANES = 4;
    static const u32 WARP_ROWS = 16 * HEIGHT;
    static const u32 TILE_ROWS = TEAM / PARTS * WARP_ROWS;
    // How many of a thread's numbers lie together along the width.
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

    // A tile of rows to be multiplied, read and split anew for each product: registers are for sums.
    template <u32 WIDTH, bool is_held>
    struct Left {
        const T* tile;

        __device__ explicit Left(const T* rows)
            : tile(rows + (warp_row() + lane() % 16) * Line<WIDTH>::length + lane() / 16 * 4) {}
        __device__ void hold() {}
        __device__ SplitLeft at(u32 step, u32 m) const {
            u32 bits[4];
            read_matrices<false>(tile + m * 16 * Line<WIDTH>::length + step * 8, bits[0], bits[1], bits[2], bits[3]);
            return SplitLeft(of_bits(bits[0]), of_bits(bits[1]), of_bits(bits[2]), of_bits(bits[3]));
        }
    };

    // sums += left · right, for 8 columns of them from number `j` of a thread's on; of the parts of both that are told.
    template <u32 COUNT>
    __device__ static void multiply(Real (&sums)[ROWS][COUNT], const SplitLeft (&left)[HEIGHT], Left8 SplitLeft::*of_left,
                                    const Right8& right, u32 j) {
#pragma unroll
        for (u32 m = 0; m < HEIGHT; m++) {
            multiply_singles(sums[2 * m][j], sums[2 * m][j + 1], sums[2 * m + 1][j], sums[2 * m + 1][j + 1],
                             left[m].*of_left, right);
        }
    }

    // products = left · rightᵀ: rows times columns, along the width.
    template <u32 WIDTH, bool is_held, u32 COUNT>
    __device__ static void multiply_turned(Real (&products)[ROWS][COUNT], const Left<WIDTH, is_held>& left,
                                           const T* right) {
        const T* column = right + (lane() / 16 * 8 + lane() % 8) * Line<WIDTH>::length + lane() / 8 % 2 * 4;
        Real rests[ROWS][COUNT];
        clear(products);
        clear(rests);
#pragma unroll 2
        for (u32 step = 0; step < WIDTH / 8; step++) {
            SplitLeft l[HEIGHT];
#pragma unroll
            for (u32 m = 0; m < HEIGHT; m++) {
                l[m] = left.at(step, m);
            }
#pragma unroll
            for (u32 j = 0; j < COUNT; j += 4) {
                u32 bits[4];
                read_matrices<false>(column + j * 4 * Line<WIDTH>::length + step * 8, bits[0], bits[1], bits[2],
                                     bits[3]);
                SplitRight r[2] = {SplitRight(of_bits(bits[0]), of_bits(bits[1])),
                                   SplitRight(of_bits(bits[2]), of_bits(bits[3]))};
                multiply(rests, l, &SplitLeft::small, r[0].big, j);
                multiply(rests, l, &SplitLeft::small, r[1].big, j + 2);
                multiply(products, l, &SplitLeft::big, r[0].big, j);
                multiply(products, l, &SplitLeft::big, r[1].big, j + 2);
                multiply(rests, l, &SplitLeft::big, r[0].small, j);
                multiply(rests, l, &SplitLeft::big, r[1].small, j + 2);
            }
        }
#pragma unroll
        for (u32 i = 0; i < ROWS; i++) {
#pragma unroll
            for (u32 j = 0; j < COUNT; j++) {
                products[i][j] += checked_rest(rests[i][j]);
            }
        }
    }

    // A left matrix of weights of 8 columns, which stay in registers. Its columns are in another order than theirs: first
    // the even ones.
    template <u32 COUNT>
    __device__ static SplitLeft left_of(const Real (&weights)[ROWS][COUNT], u32 step, u32 m) {
        const Real *upper = &weights[2 * m][2 * step], *lower = &weights[2 * m + 1][2 * step];
        return SplitLeft(upper[0], lower[0], upper[1], lower[1]);
    }

    // sums += weights · right: a part of the width of `right`, which has a row for each column of the weights. Some
    // columns at a time, whose rests come first: so one set of registers has both.
    template <u32 WIDTH, u32 COUNT, u32 SUMS>
    __device__ static void multiply_weights(Real (&sums)[ROWS][SUMS], const Real (&weights)[ROWS][COUNT],
                                            const T* right, Real*) {
        const u32 LINE = Line<WIDTH>::length, AT_ONCE = 8 / HEIGHT;
        // A right matrix has its rows in the order of the left one's columns. What lanes read lies in different banks.
        const T* first = right + lane() % LANES * 2 * LINE + lane() / LANES;
#pragma unroll
        for (u32 j = 0; j < SUMS; j += AT_ONCE) {
            Real products[ROWS][AT_ONCE];
            clear(products);
#pragma unroll
            for (u32 step = 0; step < COUNT / 2; step++) {
                SplitLeft l[HEIGHT];
#pragma unroll
                for (u32 m = 0; m < HEIGHT; m++) {
                    l[m] = left_of(weights, step, m);
                }
#pragma unroll
                for (u32 n = 0; n < AT_ONCE; n += 4) {
                    const T* at = first + step * 8 * LINE + (j + n) * 4;
                    SplitRight r[2] = {SplitRight(load(at[0]), load(at[LINE])),
                                       SplitRight(load(at[8]), load(at[LINE + 8]))};
                    multiply(products, l, &SplitLeft::small, r[0].big, n);
                    multiply(products, l, &SplitLeft::small, r[1].big, n + 2);
                    multiply(products, l, &SplitLeft::big, r[0].small, n);
                    multiply(products, l, &SplitLeft::big, r[1].small, n + 2);
                }
            }
#pragma unroll
            for (u32 i = 0; i < ROWS; i++) {
#pragma unroll
                for (u32 n = 0; n < AT_ONCE; n++) {
                    products[i][n] = checked_rest(products[i][n]);
                }
            }
#pragma unroll
            for (u32 step = 0; step < COUNT / 2; step++) {
                SplitLeft l[HEIGHT];
#pragma unroll
                for (u32 m = 0; m < HEIGHT; m++) {
                    l[m] = left_of(weights, step, m);
                }
#pragma unroll
                for (u32 n = 0; n < AT_ONCE; n += 2) {
                    const T* at = first + step * 8 * LINE + (j + n) * 4;
                    SplitRight r(load(at[0]), load(at[LINE]));
                    multiply(products, l, &SplitLeft::big, r.big, n);
                }
            }
#pragma unroll
            for (u32 i = 0; i < ROWS; i++) {
#pragma unroll
                for (u32 n = 0; n < AT_ONCE; n++) {
                    sums[i][j + n] += products[i][n];
                }
            }
        }
    }
};
