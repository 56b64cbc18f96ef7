// Columns: sums over the rows of a matrix, deterministic however many blocks make them. T is any floating-point type.
//
// A row of blocks stands before the columns, each block before `WARP` packs of them (or `WARP` single ones, where rows
// do not begin alike), and each of its warps goes over every eighth row. Where matrices are long there are more rows of
// blocks, each for a part of the rows. Their sums are stored separately, and a second kernel adds them in order.
#pragma once
#include "rows.cuh"

const u32 SLICES = THREADS / WARP;

// Calls `f` with how many columns a thread has.
template <class F>
__device__ inline void by_columns(u32 is_wide, F f) {
    if (is_wide) {
        f(Count<WIDTH>());
    } else {
        f(Count<1>());
    }
}

// Which rows this block's are, of those that are shared among the rows of blocks.
struct Part {
    u64 first;
    u64 end;

    __device__ static Part of(u64 rows) {
        u64 each = (rows + gridDim.y - 1) / gridDim.y;
        u64 first = each * blockIdx.y;
        return {first < rows ? first : rows, first + each < rows ? first + each : rows};
    }
};

// `add(row, column, sums)` adds some columns of a row to their sums; then `done(which, column, sum)` gets the sums of
// this block's part of the rows, each sum of each column once.
template <u32 kinds, u32 n, class F, class G>
__device__ inline void sum_columns(Count<n>, Part part, u64 columns, F add, G done) {
    __shared__ Real of_slice[SLICES][WARP * n];
    u32 lane = threadIdx.x % WARP, slice = threadIdx.x / WARP;
    u64 border = (u64)blockIdx.x * WARP * n;
    u64 column = border + lane * n;
    Reals<n> sums[kinds] = {};
    if (column < columns) {
#pragma unroll 2
        for (u64 row = part.first + slice; row < part.end; row += SLICES) {
            add(row, column, sums);
        }
    }
#pragma unroll
    for (u32 which = 0; which < kinds; which++) {
        __syncthreads();
        for (u32 k = 0; k < n; k++) {
            of_slice[slice][lane * n + k] = sums[which].of[k];
        }
        __syncthreads();
#pragma unroll 1
        for (u32 place = threadIdx.x; place < WARP * n; place += THREADS) {
            Real sum = of_slice[0][place];
            for (u32 other = 1; other < SLICES; other++) {
                sum += of_slice[other][place];
            }
            if (border + place < columns) {
                done(which, border + place, sum);
            }
        }
    }
}

// Where the sum of a column over a part of the rows lies.
__device__ inline u64 place_of_part(u32 which, u32 part, u32 parts, u64 column, u64 columns) {
    return ((u64)which * parts + part) * columns + column;
}

// The destination of sums of columns, if any, and the factor of its contents, which are not read if that is 0.
struct Sums {
    T* out;
    f64 keep;

    __device__ void put(u64 column, Real sum) const {
        if (out != nullptr) {
            out[column] = store<T>(keep == 0 ? sum : (Real)keep * load(out[column]) + sum);
        }
    }
};

// Puts a block's sum where it belongs, if the block had all rows, else with those of other parts.
__device__ inline void put_or_part(const Sums& sums, Real* parts, u32 which, u64 column, u64 columns, Real sum) {
    if (gridDim.y == 1) {
        sums.put(column, sum);
    } else {
        parts[place_of_part(which, blockIdx.y, gridDim.y, column, columns)] = sum;
    }
}

// The second kernel: a row of blocks for each kind of sum.
__device__ inline void add_parts(const Sums& first, const Sums& second, const Real* parts, u32 count, u64 columns) {
    Sums out = blockIdx.y == 0 ? first : second;
    sum_columns<1>(
        Count<1>(), Part{0, count}, columns,
        [&](u64 part, u64 column, auto& sums) {
            sums[0].of[0] += parts[place_of_part(blockIdx.y, (u32)part, count, column, columns)];
        },
        [&](u32, u64 column, Real sum) { out.put(column, sum); });
}

#define ADD_PARTS(NAME)                                                                                \
    KERNEL void NAME(const Sums first, const Sums second, const Real* parts, u32 count, u64 columns) { \
        add_parts(first, second, parts, count, columns);                                               \
    }                                                                                                  \
    EXPORT(NAME)
