// Extremes: the largest or smallest elements along an axis, and their indices. T is any floating-point type.
//
// They are found one after another, each as the best of those that come after the one before it, so that nothing but
// the results is written. The division of a line among threads does not change the result.
#include "block.cuh"
#include "nest.cuh"

// Lines of `length` elements, of which `count` are found; how far apart the places, the results and the elements of a
// line lie.
struct Lines {
    u64 lines;
    u64 length;
    u64 count;
    u64 strides[3];
    // Threads that share a line: part of a warp, or the whole block.
    u32 group;
    u32 is_smallest;
};

// A number and where it stands. In a search for the smallest, numbers are negated.
struct Found {
    Real value;
    u64 place;
};
const u64 NOWHERE = ~0ull;

// Whether a is found before b. NaN comes first, then the larger number, and of equal numbers the first.
__device__ inline bool is_before(Found a, Found b) {
    bool none_a = a.value != a.value, none_b = b.value != b.value;
    if (none_a != none_b) {
        return none_a;
    }
    if (!none_a && a.value != b.value) {
        return a.value > b.value;
    }
    return a.place < b.place;
}

__device__ inline Found better(Found a, Found b) {
    if (a.place == NOWHERE || b.place == NOWHERE) {
        return a.place == NOWHERE ? b : a;
    }
    return is_before(a, b) ? a : b;
}

// Without `out`, only places are written.
KERNEL void extremes_along(i64* places, T* out, const T* in, const Lines shape, const Nest<3> nest) {
    __shared__ Found of_warp[THREADS / WARP];
    u32 group = shape.group, lane = threadIdx.x % group, lines_a_block = THREADS / group;
    for (u64 first = (u64)blockIdx.x * lines_a_block; first < shape.lines; first += (u64)gridDim.x * lines_a_block) {
        u64 line = first + threadIdx.x / group;
        Offsets<3> at = {};
        if (line < shape.lines) {
            at = offsets_of(nest, line);
        }
        Found last = {Real(0), NOWHERE};
        for (u64 number = 0; number < shape.count; number++) {
            Found best = {Real(0), NOWHERE};
            for (u64 i = lane; line < shape.lines && i < shape.length; i += group) {
                Real value = load(in[at.of[2] + i * shape.strides[2]]);
                Found next = {shape.is_smallest ? -value : value, i};
                if (number == 0 || is_before(last, next)) {
                    best = better(best, next);
                }
            }
            for (u32 distance = (group < WARP ? group : WARP) / 2; distance > 0; distance /= 2) {
                Real value = __shfl_xor_sync(ALL_LANES, best.value, distance);
                best = better(best, Found{value, __shfl_xor_sync(ALL_LANES, best.place, distance)});
            }
            if (group > WARP) {
                __syncthreads();
                if (threadIdx.x % WARP == 0) {
                    of_warp[threadIdx.x / WARP] = best;
                }
                __syncthreads();
                for (u32 warp = 0; warp < THREADS / WARP; warp++) {
                    best = better(best, of_warp[warp]);
                }
            }
            if (lane == 0 && line < shape.lines) {
                places[at.of[0] + number * shape.strides[0]] = (i64)best.place;
                if (out) {
                    out[at.of[1] + number * shape.strides[1]] = in[at.of[2] + best.place * shape.strides[2]];
                }
            }
            last = best;
        }
    }
}
EXPORT(extremes_along)
