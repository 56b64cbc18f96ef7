// Attention in single precision: a warp multiplies tiles on tensor cores, with split factors.
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

    // A tile of rows to be multiplied, read and split anew for each product, since sums need the registers.
    template <u32 WIDTH, bool is_held>
    struct Left {
        const T* tile;

        __device__ explicit Left(const T* rows)
            : tile(rows + (warp_row() + lane() % 16) * Line<WIDTH>::length + lane() / 16 * 4) {}
        __device__ void hold() {}
        __device__ SplitLeft<HEIGHT> at(u32 step) const {
            SplitLeft<HEIGHT> left;
#pragma unroll
            for (u32 m = 0; m < HEIGHT; m++) {
                u32 a, b, c, d;
                read_matrices<false>(tile + m * 16 * Line<WIDTH>::length + step * 8, a, b, c, d);
                split(Left8{of_bits(a), of_bits(b), of_bits(c), of_bits(d)}, left.big[m], left.small[m]);
            }
            return left;
        }
    };

    // Left matrices of weights of 8 columns, which stay in registers. Their columns are in another order than the
    // weights': the even ones come first.
    template <u32 COUNT>
    __device__ static SplitLeft<HEIGHT> left_of(const Real (&weights)[ROWS][COUNT], u32 step) {
        SplitLeft<HEIGHT> left;
#pragma unroll
        for (u32 m = 0; m < HEIGHT; m++) {
            const Real *upper = &weights[2 * m][2 * step], *lower = &weights[2 * m + 1][2 * step];
            split(Left8{(f32)upper[0], (f32)lower[0], (f32)upper[1], (f32)lower[1]}, left.big[m], left.small[m]);
        }
        return left;
    }

    // sums += left · right, for 8 columns of them from number `j` of a thread's on.
    template <u32 COUNT>
    __device__ static void multiply(Real (&sums)[ROWS][COUNT], const Left8 (&left)[HEIGHT], const Right8& right,
                                    u32 j) {
#pragma unroll
        for (u32 m = 0; m < HEIGHT; m++) {
            multiply_singles(sums[2 * m][j], sums[2 * m][j + 1], sums[2 * m + 1][j], sums[2 * m + 1][j + 1], left[m],
                             right);
        }
    }

    // sums = left · rightᵀ, along STEPS times 8 columns of both from step `begin` on. `right` is where this lane reads.
    template <u32 WIDTH, u32 STEPS, bool is_held, u32 COUNT>
    __device__ static void multiply_steps(Real (&sums)[ROWS][COUNT], const Left<WIDTH, is_held>& left, const T* right,
                                          u32 begin) {
        Real rests[ROWS][COUNT];
        clear(sums);
        clear(rests);
#pragma unroll 2
        for (u32 step = begin; step < begin + STEPS; step++) {
            SplitLeft<HEIGHT> l = left.at(step);
#pragma unroll
            for (u32 j = 0; j < COUNT; j += 4) {
                u32 a, b, c, d;
                read_matrices<false>(right + j * 4 * Line<WIDTH>::length + step * 8, a, b, c, d);
                SplitRight first(Right8{of_bits(a), of_bits(b)}), second(Right8{of_bits(c), of_bits(d)});
                multiply(rests, l.small, first.big, j);
                multiply(rests, l.small, second.big, j + 2);
                multiply(sums, l.big, first.big, j);
                multiply(sums, l.big, second.big, j + 2);
                multiply(rests, l.big, first.small, j);
                multiply(rests, l.big, second.small, j + 2);
            }
        }
#pragma unroll
        for (u32 i = 0; i < ROWS; i++) {
#pragma unroll
            for (u32 j = 0; j < COUNT; j++) {
                sums[i][j] = fmaf(sums[i][j], GROWTH, checked_rest(rests[i][j]));
            }
        }
    }

    // products = left · rightᵀ: rows times columns, along the width.
    template <u32 WIDTH, bool is_held, u32 COUNT>
    __device__ static void multiply_turned(Real (&products)[ROWS][COUNT], const Left<WIDTH, is_held>& left,
                                           const T* right) {
        const u32 STEPS = WIDTH % 64 == 0 ? 8 : WIDTH / 8;
        right += (lane() / 16 * 8 + lane() % 8) * Line<WIDTH>::length + lane() / 8 % 2 * 4;
        multiply_steps<WIDTH, STEPS>(products, left, right, 0);
#pragma unroll 1
        for (u32 begin = STEPS; begin < WIDTH / 8; begin += STEPS) {
            Real more[ROWS][COUNT];
            multiply_steps<WIDTH, STEPS>(more, left, right, begin);
#pragma unroll
            for (u32 i = 0; i < ROWS; i++) {
#pragma unroll
                for (u32 j = 0; j < COUNT; j++) {
                    products[i][j] += more[i][j];
                }
            }
        }
    }

    // A number that was read before. High tiles leave no registers to keep it: they read it once more.
    __device__ static f32 again(const T* number) {
        if constexpr (HEIGHT == 1) {
            return load(*number);
        } else {
            return *(const volatile f32*)number;
        }
    }

    // sums += weights · right: a part of the width of `right`, which has a row for each column of the weights. Some
    // columns of the sums at a time, their rests first, so that one set of registers has rests and products.
    template <u32 WIDTH, u32 COUNT, u32 SUMS>
    __device__ static void multiply_weights(Real (&sums)[ROWS][SUMS], const Real (&weights)[ROWS][COUNT],
                                            const T* right, Real*) {
        const u32 LINE = Line<WIDTH>::length, AT_ONCE = 8, STEPS = COUNT / 2;
        // Rows are in the order of a left matrix's columns; what lanes read at a time lies in different banks.
        right += lane() % LANES * 2 * LINE + lane() / LANES;
#pragma unroll
        for (u32 j = 0; j < SUMS; j += AT_ONCE) {
            Real products[ROWS][AT_ONCE];
            clear(products);
#pragma unroll
            for (u32 step = 0; step < STEPS; step++) {
                SplitLeft<HEIGHT> l = left_of(weights, step);
#pragma unroll
                for (u32 n = 0; n < AT_ONCE; n += 4) {
                    const T *upper = right + step * 8 * LINE + (j + n) * 4, *lower = upper + LINE;
                    SplitRight first(Right8{load(upper[0]), load(lower[0])});
                    SplitRight second(Right8{load(upper[8]), load(lower[8])});
                    multiply(products, l.small, first.big, n);
                    multiply(products, l.small, second.big, n + 2);
                    multiply(products, l.big, first.small, n);
                    multiply(products, l.big, second.small, n + 2);
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
            for (u32 step = 0; step < STEPS; step++) {
                SplitLeft<HEIGHT> l = left_of(weights, step);
#pragma unroll
                for (u32 n = 0; n < AT_ONCE; n += 2) {
                    const T *upper = right + step * 8 * LINE + (j + n) * 4, *lower = upper + LINE;
                    SplitRight r(Right8{again(upper), again(lower)});
                    multiply(products, l.big, r.big, n);
                }
            }
#pragma unroll
            for (u32 i = 0; i < ROWS; i++) {
#pragma unroll
                for (u32 n = 0; n < AT_ONCE; n++) {
                    sums[i][j + n] = fmaf(products[i][n], GROWTH, sums[i][j + n]);
                }
            }
        }
    }
};
