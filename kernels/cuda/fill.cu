// Fill: fills with one value, and copies from one layout to another. T stands for all types of its size.
#include "lines.cuh"

// Elements that a thread takes at a time: 16 bytes of them.
const u32 WIDTH = 16 / sizeof(T);

KERNEL void fill(T* out, const Lines<1> lines, const T value) {
    Share share = share_of_line(lines);
    each_line(lines, [&](const Offsets<1>& at) {
        write_line<WIDTH>(share, line_of(out, lines, at, 0), [&] { return value; });
    });
}
EXPORT_PLAIN(fill)

KERNEL void copy(T* out, const T* in, const Lines<2> lines) {
    Share share = share_of_line(lines);
    each_line(lines, [&](const Offsets<2>& at) {
        write_line<WIDTH>(share, line_of(out, lines, at, 0), [](T x) { return x; }, line_of(in, lines, at, 1));
    });
}
EXPORT_PLAIN(copy)

// Matrices whose rows lie one after another where they are written, and whose columns do where they are read.
struct Transposed {
    u64 rows, columns;
    // From one row to the next in `out`, from one column to the next in `in`.
    u64 row_distance, column_distance;
    // The matrices, and how many there are.
    u64 count;
    Nest<2> matrices;
};

const u32 TILE = sizeof(T) < 4 ? 64 : 32;
// By how much a row of a tile is longer than its numbers, so that those of a column lie in different banks, of 4 bytes.
const u32 BESIDE = sizeof(T) < 4 ? 4 / sizeof(T) : 1;
// Threads of a block that share a row of a tile, and rows that a block has at a time.
const u32 ABREAST = 32, AT_ONCE = 8;

// A block reads a tile by columns and writes it by rows, so that both go over memory in order.
KERNEL void copy_turned(T* out, const T* in, const Transposed turned) {
    __shared__ T tile[TILE][TILE + BESIDE];
    u64 down = (turned.rows + TILE - 1) / TILE, across = (turned.columns + TILE - 1) / TILE;
    for (u64 number = blockIdx.x; number < down * across * turned.count; number += gridDim.x) {
        u64 line = quotient(number, across), matrix = quotient(line, down);
        Offsets<2> at = offsets_of(turned.matrices, matrix);
        u64 row = (line - matrix * down) * TILE, column = (number - line * across) * TILE;
        // All is asked for before any of it is waited for.
        T own[TILE / AT_ONCE][TILE / ABREAST] = {};
#pragma unroll
        for (u32 j = 0; j < TILE / AT_ONCE; j++) {
#pragma unroll
            for (u32 i = 0; i < TILE / ABREAST; i++) {
                u32 y = threadIdx.y + j * AT_ONCE, x = threadIdx.x + i * ABREAST;
                if (column + y < turned.columns && row + x < turned.rows) {
                    own[j][i] = in[at.of[1] + (column + y) * turned.column_distance + row + x];
                }
            }
        }
#pragma unroll
        for (u32 j = 0; j < TILE / AT_ONCE; j++) {
#pragma unroll
            for (u32 i = 0; i < TILE / ABREAST; i++) {
                tile[threadIdx.y + j * AT_ONCE][threadIdx.x + i * ABREAST] = own[j][i];
            }
        }
        __syncthreads();
#pragma unroll
        for (u32 j = 0; j < TILE / AT_ONCE; j++) {
#pragma unroll
            for (u32 i = 0; i < TILE / ABREAST; i++) {
                u32 y = threadIdx.y + j * AT_ONCE, x = threadIdx.x + i * ABREAST;
                if (row + y < turned.rows && column + x < turned.columns) {
                    out[at.of[0] + (row + y) * turned.row_distance + column + x] = tile[x][y];
                }
            }
        }
        __syncthreads();
    }
}
EXPORT(copy_turned)
