// Index: rows picked from a table, and added back to it. T is any fraction.
//
// Adding costs about what the rows take to read and the rows of the table that they go to, to read and write; see
// buckets.cuh for what finding equal indices costs. Halves are added in single precision and rounded once for each 256
// rows that go to one place.
#include "buckets.cuh"
#include "nest.cuh"

// Elements that a thread takes at a time: 16 bytes of them.
const u32 WIDTH = 16 / sizeof(T);

// Threads of a block lie `across` beside one another along rows; the others take other rows.
template <u32 width>
__device__ inline void gather(T* out, const T* table, const i64* indices, u64 count, u64 rows, u64 columns, u32 across,
                              Fault* fault) {
    u32 x = threadIdx.x % across, y = threadIdx.x / across, down = THREADS / across;
    for (u64 i = (u64)blockIdx.x * down + y; i < count; i += (u64)gridDim.x * down) {
        i64 index = indices[i];
        if (index < 0 || (u64)index >= rows) {
            if (x == 0) {
                tell(fault, index, (i64)rows);
            }
            continue;
        }
        for (u64 column = (u64)x * width; column < columns; column += (u64)across * width) {
            *(Pack<T, width>*)(out + i * columns + column) =
                *(const Pack<T, width>*)(table + (u64)index * columns + column);
        }
    }
}

KERNEL void gather_rows(T* out, const T* table, const i64* indices, u64 count, u64 rows, u64 columns, u32 across,
                        Fault* fault) {
    gather<1>(out, table, indices, count, rows, columns, across, fault);
}
EXPORT_PLAIN(gather_rows)

// Where rows begin at multiples of 16 bytes and have a multiple of them.
KERNEL void gather_rows_wide(T* out, const T* table, const i64* indices, u64 count, u64 rows, u64 columns, u32 across,
                             Fault* fault) {
    gather<WIDTH>(out, table, indices, count, rows, columns, across, fault);
}
EXPORT_PLAIN(gather_rows_wide)

// Writes the bucket of each index; none for one outside of the table.
KERNEL void bucket_rows(u16* buckets, const i64* indices, u64 count, u64 rows, u32 many, Fault* fault) {
    for (u64 i = first_element(); i < count; i += all_threads()) {
        i64 index = indices[i];
        bool is_row = index >= 0 && (u64)index < rows;
        buckets[i] = is_row ? bucket_of((u64)index, many) : NO_BUCKET;
        if (!is_row) {
            tell(fault, index, (i64)rows);
        }
    }
}
EXPORT_PLAIN(bucket_rows)

// Adds rows to the rows of the table with this block's bucket. Of the block's warps, `across` lie beside one another
// along rows; the others take other rows of the table.
template <u32 width>
__device__ inline void add(T* table, const T* added, const i64* indices, const u16* buckets, u64 count, u64 columns,
                           u32 across) {
    __shared__ Sorted sorted;
    u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    u32 x = warp % across * WARP + lane, y = warp / across, down = THREADS / WARP / across;
    each_window(buckets, count, (u16)blockIdx.x, [&](const u32* things, u32 number) {
        u32 thing = threadIdx.x < number ? things[threadIdx.x] : 0;
        sort_window(sorted, number, thing, (u64)indices[thing]);
        for (u32 start = y; start < number; start += down) {
            u32 end = end_of_run(sorted, number, start);
            if (end == start) {
                continue;
            }
            T* row = table + sorted.keys[start] * columns;
            for (u64 column = (u64)x * width; column < columns; column += (u64)across * WARP * width) {
                Pack<T, width>* place = (Pack<T, width>*)(row + column);
                Pack<T, width> pack = *place;
                Real sums[width];
                for (u32 k = 0; k < width; k++) {
                    sums[k] = load(pack.element[k]);
                }
#pragma unroll 4
                for (u32 i = start; i < end; i++) {
                    pack = *(const Pack<T, width>*)(added + sorted.things[i] * columns + column);
                    for (u32 k = 0; k < width; k++) {
                        sums[k] += load(pack.element[k]);
                    }
                }
                for (u32 k = 0; k < width; k++) {
                    pack.element[k] = store<T>(sums[k]);
                }
                *place = pack;
            }
        }
    });
}

KERNEL void add_rows(T* table, const T* added, const i64* indices, const u16* buckets, u64 count, u64 columns,
                     u32 across) {
    add<1>(table, added, indices, buckets, count, columns, across);
}
EXPORT(add_rows)

// Where rows begin at multiples of 16 bytes and have a multiple of them.
KERNEL void add_rows_wide(T* table, const T* added, const i64* indices, const u16* buckets, u64 count, u64 columns,
                          u32 across) {
    add<WIDTH>(table, added, indices, buckets, count, columns, across);
}
EXPORT(add_rows_wide)
