// Pick: gathers elements along an axis at given indices, and adds to them. T is any type for `gather`, any
// floating-point type for the others.
//
// Adding goes line by line where there are many lines along the axis, a thread each; else by the buckets of
// buckets.cuh. Either adds in the order of the places.
#include "buckets.cuh"
#include "nest.cuh"

// The operands are the output, the input and the places. Of the operand that is indexed, the first element of each line
// is given.
KERNEL void gather(T* out, const T* in, const i64* places, u64 elements, u64 size, u64 stride, Fault* fault,
                   const Nest<3> nest) {
    for (u64 i = first_element(); i < elements; i += all_threads()) {
        Offsets<3> at = offsets_of(nest, i);
        i64 place = places[at.of[2]];
        if (place < 0 || (u64)place >= size) {
            tell(fault, place, (i64)size);
        } else {
            out[at.of[0]] = in[at.of[1] + (u64)place * stride];
        }
    }
}
EXPORT_PLAIN(gather)

// Lines of `size` elements that are added to, of `length` elements that are added, and of as many places; and how far
// apart the elements of each are.
struct Lines {
    u64 lines;
    u64 size;
    u64 length;
    u64 strides[3];
};

KERNEL void scatter_lines(T* out, const T* in, const i64* places, const Lines lines, Fault* fault,
                          const Nest<3> nest) {
    for (u64 line = first_element(); line < lines.lines; line += all_threads()) {
        Offsets<3> at = offsets_of(nest, line);
        for (u64 i = 0; i < lines.length; i++) {
            i64 place = places[at.of[2] + i * lines.strides[2]];
            if (place < 0 || (u64)place >= lines.size) {
                tell(fault, place, (i64)lines.size);
                continue;
            }
            T* target = out + at.of[0] + (u64)place * lines.strides[0];
            *target = store<T>(load(*target) + load(in[at.of[1] + i * lines.strides[1]]));
        }
    }
}
EXPORT_PLAIN(scatter_lines)

// Elements that are added along an axis: `count` from `first` on in the loops' order, to lines of `size`.
struct Added {
    u64 first;
    u64 count;
    u64 size;
    u64 stride;
};

// Where an element goes, and its bucket, of `many`; none where its place is outside of its line.
struct Goal {
    u64 at;
    u16 bucket;
};

__device__ inline Goal goal_of(const Added& added, const Offsets<3>& at, i64 place, u32 many) {
    u64 goal = at.of[0] + (u64)place * added.stride;
    return {goal, place >= 0 && (u64)place < added.size ? bucket_of(goal, many) : NO_BUCKET};
}

// Writes the bucket of each element, if there is room, and tells of places outside of their lines.
KERNEL void bucket_places(u16* buckets, const i64* places, const Added added, u32 many, Fault* fault,
                          const Nest<3> nest) {
    for (u64 i = first_element(); i < added.count; i += all_threads()) {
        Offsets<3> at = offsets_of(nest, added.first + i);
        i64 place = places[at.of[2]];
        Goal goal = goal_of(added, at, place, many);
        if (buckets) {
            buckets[i] = goal.bucket;
        }
        if (goal.bucket == NO_BUCKET) {
            tell(fault, place, (i64)added.size);
        }
    }
}
EXPORT_PLAIN(bucket_places)

// Adds those elements that go to places with this block's bucket.
KERNEL void __launch_bounds__(THREADS, 4) scatter_buckets(T* out, const T* in, const i64* places, const u16* buckets, const Added added,
                            const Nest<3> nest) {
    __shared__ Sorted sorted;
    __shared__ Real values[THREADS];
    auto bucket = [&](u64 thing) {
        Offsets<3> at = offsets_of(nest, added.first + thing);
        return goal_of(added, at, places[at.of[2]], gridDim.x).bucket;
    };
    each_window(buckets, added.count, (u16)blockIdx.x, bucket, [&](const u32* things, u32 number) {
        u32 thing = threadIdx.x < number ? things[threadIdx.x] : 0;
        Offsets<3> at = offsets_of(nest, added.first + thing);
        u32 rank = sort_window(sorted, number, thing, goal_of(added, at, places[at.of[2]], gridDim.x).at);
        if (threadIdx.x < number) {
            values[rank] = load(in[at.of[1]]);
        }
        __syncthreads();
        u32 end = end_of_run(sorted, number, threadIdx.x);
        if (end > threadIdx.x) {
            T* target = out + sorted.keys[threadIdx.x];
            Real sum = load(*target);
            for (u32 i = threadIdx.x; i < end; i++) {
                sum += values[i];
            }
            *target = store<T>(sum);
        }
    });
}
EXPORT(scatter_buckets)
