// Index: gathers rows of a table, and adds gradients back to them. T is any floating-point type.
//
// Adding costs about as much as reading the rows, and reading and writing their rows of the table. See buckets.cuh for
// the cost of finding equal indices. Halves are added in single precision and rounded once for each 256
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

// The bucket of a row, of `many`; none for an index outside of the table.
__device__ inline u16 bucket_of_row(i64 index, u64 rows, u32 many) {
    return index >= 0 && (u64)index < rows ? bucket_of((u64)index, many) : NO_BUCKET;
}

// Writes the bucket of each index, if there is room, and tells of those outside of the table.
KERNEL void bucket_rows(u16* buckets, const i64* indices, u64 count, u64 rows, u32 many, Fault* fault) {
    for (u64 i = first_element(); i < count; i += all_threads()) {
        u16 bucket = bucket_of_row(indices[i], rows, many);
        if (buckets) {
            buckets[i] = bucket;
        }
        if (bucket == NO_BUCKET) {
            tell(fault, indices[i], (i64)rows);
        }
    }
}
EXPORT_PLAIN(bucket_rows)

// A table to whose rows others are added.
struct Table {
    u64 rows;
    u64 columns;
    // Number of rows that are added.
    u64 count;
    // Of the block's warps, how many lie beside one another along rows; the others take other rows of the table.
    u64 across;
};

// Adds rows to the rows of the table with this block's bucket.
template <u32 width>
__device__ inline void add(T* out, const T* added, const i64* indices, const u16* buckets, const Table& table) {
    __shared__ Sorted sorted;
    u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, across = (u32)table.across;
    u32 x = warp % across * WARP + lane, y = warp / across, down = THREADS / WARP / across;
    u64 columns = table.columns;
    auto bucket = [&](u64 thing) { return bucket_of_row(indices[thing], table.rows, gridDim.x); };
    each_window(buckets, table.count, (u16)blockIdx.x, bucket, [&](const u32* things, u32 number) {
        u32 thing = threadIdx.x < number ? things[threadIdx.x] : 0;
        sort_window(sorted, number, thing, (u64)indices[thing]);
        for (u32 start = y; start < number; start += down) {
            u32 end = end_of_run(sorted, number, start);
            if (end == start) {
                continue;
            }
            T* row = out + sorted.keys[start] * columns;
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

KERNEL void add_rows(T* out, const T* added, const i64* indices, const u16* buckets, const Table table) {
    add<1>(out, added, indices, buckets, table);
}
EXPORT(add_rows)

// Where rows begin at multiples of 16 bytes and have a multiple of them.
KERNEL void __launch_bounds__(THREADS, 4) add_rows_wide(T* out, const T* added, const i64* indices, const u16* buckets, const Table table) {
    add<WIDTH>(out, added, indices, buckets, table);
}
EXPORT(add_rows_wide)
