// Reduce: sums along axes. T is any floating-point type.
//
// A sum is over the loops `summed`, at each place of the loops `kept`. Large sums are made in parts by several rows of
// blocks (y), which write their parts to `parts`; `sum_parts` adds those in order. How sums are cut depends on sizes
// alone: results are the same each time.
#include "block.cuh"
#include "nest.cuh"

// Elements that a thread takes at a time: 16 bytes of them.
const u32 WIDTH = 16 / sizeof(T);
typedef Pack<T, WIDTH> Row;

// The division of sums over rows among the threads of a block. The elements are divided into pieces of rows.
struct Rows {
    // Sums in all, rows that each is over, elements in a row and how far apart they are.
    u64 sums;
    u64 rows;
    u64 length;
    u64 stride;
    // Elements in a piece, and pieces in a row.
    u64 piece;
    u64 pieces;
    // Threads that share a sum, up to a warp or all of a block, and those of them that share a piece: powers of two.
    u32 group;
    u32 across;
};

// The division of sums over columns among the threads of a block.
struct Columns {
    // Columns, how far apart they are in the input and the output, rows that each sum is over, and how often there is
    // all that.
    u64 columns;
    u64 stride;
    u64 out_stride;
    u64 rows;
    u64 times;
    // Threads that lie beside one another, a power of two. The others of the block take other rows.
    u64 across;
};

__device__ inline u64 least(u64 a, u64 b) { return a < b ? a : b; }

// The fold over `group` neighbours: part of a warp, or the whole block. Every thread of the block takes part.
__device__ inline Real fold_group(Real sum, u32 group) {
    if (group > WARP) {
        return fold_block<Sum>(sum);
    }
    for (u32 distance = group / 2; distance > 0; distance /= 2) {
        sum += __shfl_xor_sync(ALL_LANES, sum, distance);
    }
    return sum;
}

// Every `step`-th of so many elements from the `first` on, or of packs of them.
__device__ inline Real sum_piece(const T* in, u64 length, u64 stride, u32 first, u32 step) {
    Real sum = 0;
    if (stride != 1) {
#pragma unroll 4
        for (u64 i = first; i < length; i += step) {
            sum += load(in[i * stride]);
        }
        return sum;
    }
    u64 head = least(length, (16 - (u64)in % 16) % 16 / sizeof(T));
    u64 whole = (length - head) / WIDTH;
    for (u64 i = first; i < head; i += step) {
        sum += load(in[i]);
    }
    const Row* packs = (const Row*)(in + head);
#pragma unroll 4
    for (u64 i = first; i < whole; i += step) {
        Row row = packs[i];
        for (u32 k = 0; k < WIDTH; k++) {
            sum += load(row.element[k]);
        }
    }
    for (u64 i = head + whole * WIDTH + first; i < length; i += step) {
        sum += load(in[i]);
    }
    return sum;
}

// The factors of a sum and of the previous contents, which are not read if their factor is 0.
struct Factors {
    f64 scale;
    f64 keep;
};

__device__ inline void put_sum(T* out, const Factors& factors, Real sum) {
    Real total = (Real)factors.scale * sum;
    *out = store<T>(factors.keep == 0 ? total : (Real)factors.keep * load(*out) + total);
}

// Sums over rows, where the innermost axis in memory is summed. Without `parts`, they go to `out`.
KERNEL void sum_rows(T* out, Real* parts, const T* in, const Rows shape, const Nest<2> kept, const Nest<1> summed,
                     const Factors factors) {
    u32 lane = threadIdx.x % shape.group, x = lane % shape.across, y = lane / shape.across;
    u32 down = shape.group / shape.across, sums = THREADS / shape.group;
    u64 all = shape.rows * shape.pieces;
    u64 begin = all * blockIdx.y / gridDim.y, end = all * (blockIdx.y + 1) / gridDim.y;
    for (u64 first = (u64)blockIdx.x * sums; first < shape.sums; first += (u64)gridDim.x * sums) {
        u64 number = first + threadIdx.x / shape.group;
        Offsets<2> at = {};
        Real sum = 0;
        if (number < shape.sums) {
            at = offsets_of(kept, number);
            for (u64 piece = begin + y; piece < end; piece += down) {
                u64 row = shape.pieces == 1 ? piece : piece / shape.pieces;
                u64 start = (piece - row * shape.pieces) * shape.piece;
                u64 length = least(shape.length - start, shape.piece);
                const T* place = in + at.of[1] + offsets_of(summed, row).of[0] + start * shape.stride;
                sum += sum_piece(place, length, shape.stride, x, shape.across);
            }
        }
        sum = fold_group(sum, shape.group);
        if (lane == 0 && number < shape.sums) {
            if (parts) {
                parts[blockIdx.y * shape.sums + number] = sum;
            } else {
                put_sum(out + at.of[0], factors, sum);
            }
        }
    }
}
EXPORT(sum_rows)

// Adds rows from `row` to `end`, every `step`-th, of `width` neighbours.
template <u32 width>
__device__ inline void add_rows(Real* sums, const T* in, u64 row, u64 end, u64 step, const Nest<1>& summed) {
    if (summed.rank == 1) {
        u64 stride = summed.strides[0][0];
#pragma unroll 8
        for (; row < end; row += step) {
            Pack<T, width> pack = *(const Pack<T, width>*)(in + row * stride);
            for (u32 k = 0; k < width; k++) {
                sums[k] += load(pack.element[k]);
            }
        }
        return;
    }
    for (; row < end; row += step) {
        Pack<T, width> pack = *(const Pack<T, width>*)(in + offsets_of(summed, row).of[0]);
        for (u32 k = 0; k < width; k++) {
            sums[k] += load(pack.element[k]);
        }
    }
}

// Sums over columns, where the innermost axis in memory is kept. Each thread has `width` columns.
template <u32 width>
__device__ inline void sum_columns_of(T* out, Real* parts, const T* in, const Columns& shape, const Nest<2>& kept,
                                      const Nest<1>& summed, const Factors& factors) {
    __shared__ Real of_thread[width][THREADS];
    u32 across = (u32)shape.across, x = threadIdx.x % across, y = threadIdx.x / across, down = THREADS / across;
    u64 tiles = (shape.columns + across * width - 1) / (across * width);
    u64 begin = shape.rows * blockIdx.y / gridDim.y, end = shape.rows * (blockIdx.y + 1) / gridDim.y;
    for (u64 tile = blockIdx.x; tile < tiles * shape.times; tile += gridDim.x) {
        u64 time = tile / tiles, column = ((tile - time * tiles) * across + x) * width;
        Offsets<2> at = offsets_of(kept, time);
        Real sums[width] = {};
        if (column < shape.columns) {
            add_rows<width>(sums, in + at.of[1] + column * shape.stride, begin + y, end, down, summed);
        }
        __syncthreads();
        for (u32 k = 0; k < width; k++) {
            of_thread[k][threadIdx.x] = sums[k];
        }
        __syncthreads();
        if (y > 0 || column >= shape.columns) {
            continue;
        }
        for (u32 k = 0; k < width; k++) {
            for (u32 other = 1; other < down; other++) {
                sums[k] += of_thread[k][other * across + x];
            }
            if (parts) {
                parts[(blockIdx.y * shape.times + time) * shape.columns + column + k] = sums[k];
            } else {
                put_sum(out + at.of[0] + (column + k) * shape.out_stride, factors, sums[k]);
            }
        }
    }
}

KERNEL void sum_columns(T* out, Real* parts, const T* in, const Columns shape, const Nest<2> kept,
                        const Nest<1> summed, const Factors factors) {
    sum_columns_of<1>(out, parts, in, shape, kept, summed, factors);
}
EXPORT(sum_columns)

// Where all rows begin at multiples of 16 bytes and have a multiple of them.
KERNEL void sum_columns_wide(T* out, Real* parts, const T* in, const Columns shape, const Nest<2> kept,
                             const Nest<1> summed, const Factors factors) {
    sum_columns_of<WIDTH>(out, parts, in, shape, kept, summed, factors);
}
EXPORT(sum_columns_wide)

// Adds the parts of each sum to the output. The loops are over the sums as they lie in a part, and in the output.
KERNEL void sum_parts(T* out, const Real* parts, u64 count, u64 sums, u32 group, const Nest<2> kept,
                      const Factors factors) {
    u32 lane = threadIdx.x % group, sums_a_block = THREADS / group;
    for (u64 first = (u64)blockIdx.x * sums_a_block; first < sums; first += (u64)gridDim.x * sums_a_block) {
        u64 number = first + threadIdx.x / group;
        Real sum = 0;
        if (number < sums) {
#pragma unroll 8
            for (u64 part = lane; part < count; part += group) {
                sum += parts[part * sums + number];
            }
        }
        sum = fold_group(sum, group);
        if (lane == 0 && number < sums) {
            put_sum(out + offsets_of(kept, number).of[1], factors, sum);
        }
    }
}
EXPORT(sum_parts)
