// Scan: cumulative sums and products along lines. T is any floating-point type.
//
// Lines whose elements lie apart have a thread each, others a warp, few and long ones a block. Products are always made
// from the first factor to the last, so that zeros and numbers past the largest meet in the same order as on any other
// device; sums of a warp or block are made in halves, quarters and so on, which is as deterministic.
#include "nest.cuh"
#include "prefix.cuh"

// The walk along lines. The strides are those of the output and of the input.
struct Walk {
    u64 lines;
    u64 length;
    u64 strides[3];
    u32 is_product;
    u32 is_exclusive;
    u32 is_backwards;
    u32 is_padding;
};

struct Product {
    template <class R>
    __device__ static R of(R a, R b) {
        return a * b;
    }
    static constexpr u32 IDENTITY = 1;
};

struct Total : Sum {
    static constexpr u32 IDENTITY = 0;
};

// Where the line's element number `i` is, in the direction of the walk.
__device__ inline u64 step_of(const Walk& walk, u64 i) { return walk.is_backwards ? walk.length - 1 - i : i; }

template <class Fold>
__device__ inline void walk_line(T* out, const T* in, const Walk& walk) {
    Real all = Real(Fold::IDENTITY);
    for (u64 i = 0; i < walk.length; i++) {
        u64 step = step_of(walk, i);
        Real before = all;
        all = Fold::of(all, load(in[step * walk.strides[1]]));
        out[step * walk.strides[0]] = store<T>(walk.is_exclusive ? before : all);
    }
}

// A thread a line. `in` may be `out`.
KERNEL void scan_lines(T* out, const T* in, const Walk walk, const Nest<2> nest) {
    for (u64 line = first_element(); line < walk.lines; line += all_threads()) {
        Offsets<2> at = offsets_of(nest, line);
        if (walk.is_product) {
            walk_line<Product>(out + at.of[0], in + at.of[1], walk);
        } else {
            walk_line<Total>(out + at.of[0], in + at.of[1], walk);
        }
    }
}
EXPORT_PLAIN(scan_lines)

// The product of `before` and the values of the lanes before this one, one after another; and then of all lanes.
__device__ inline Before<Real> multiply_before(Real before, Real value) {
    Before<Real> products = {before, before};
    for (u32 lane = 0; lane < WARP; lane++) {
        products.sum = lane == threadIdx.x % WARP ? products.all : products.sum;
        products.all *= __shfl_sync(ALL_LANES, value, lane);
    }
    return products;
}

__device__ inline Before<Real> add_before(Real before, Real value) {
    Real upto = fold_upto<Sum>(value);
    Real previous = __shfl_up_sync(ALL_LANES, upto, 1);
    Real last = __shfl_sync(ALL_LANES, upto, WARP - 1);
    return {threadIdx.x % WARP == 0 ? before : before + previous, before + last};
}

// A warp a line.
KERNEL void scan_rows(T* out, const T* in, const Walk walk, const Nest<2> nest) {
    u64 warps = all_threads() / WARP;
    for (u64 line = first_element() / WARP; line < walk.lines; line += warps) {
        Offsets<2> at = offsets_of(nest, line);
        Before<Real> before = {Real(0), Real(walk.is_product)};
        for (u64 first = 0; first < walk.length; first += WARP) {
            u64 i = first + threadIdx.x % WARP, step = step_of(walk, i);
            bool is_in = i < walk.length;
            Real value = is_in ? load(in[at.of[1] + step * walk.strides[1]]) : Real(walk.is_product);
            before = walk.is_product ? multiply_before(before.all, value) : add_before(before.all, value);
            if (is_in) {
                Real upto = walk.is_product ? before.sum * value : before.sum + value;
                out[at.of[0] + step * walk.strides[0]] = store<T>(walk.is_exclusive ? before.sum : upto);
            }
        }
    }
}
EXPORT(scan_rows)

// Elements that a thread of a block takes at a time.
const u32 EACH = 8;

// A block a line, sums only.
KERNEL void scan_long(T* out, const T* in, const Walk walk, const Nest<2> nest) {
    for (u64 line = blockIdx.x; line < walk.lines; line += gridDim.x) {
        Offsets<2> at = offsets_of(nest, line);
        Real all = 0;
        for (u64 first = 0; first < walk.length; first += EACH * THREADS) {
            u64 own = first + threadIdx.x * EACH;
            Real values[EACH];
            Real sum = 0;
            for (u32 k = 0; k < EACH; k++) {
                bool is_in = own + k < walk.length;
                values[k] = is_in ? load(in[at.of[1] + step_of(walk, own + k) * walk.strides[1]]) : Real(0);
                sum += values[k];
            }
            Before<Real> before = sum_before(sum);
            Real upto = all + before.sum;
            for (u32 k = 0; k < EACH && own + k < walk.length; k++) {
                Real next = upto + values[k];
                out[at.of[0] + step_of(walk, own + k) * walk.strides[0]] = store<T>(walk.is_exclusive ? upto : next);
                upto = next;
            }
            all += before.all;
        }
    }
}
EXPORT(scan_long)

// The input's gradient of running products. `out` holds the products of all factors before each. Its factor,
// from the last to the first, is the sum over later results of their gradients times the factors between.
KERNEL void product_backward_lines(T* out, const T* grad, const T* in, const Walk walk, const Nest<3> nest) {
    for (u64 line = first_element(); line < walk.lines; line += all_threads()) {
        Offsets<3> at = offsets_of(nest, line);
        // An exclusive result has the factors before it, so that it counts one place earlier.
        u64 shift = walk.is_exclusive;
        Real later = 0;
        for (u64 i = walk.length; i-- > 0;) {
            bool has_grad = i + shift < walk.length, has_next = i + 1 < walk.length;
            Real slope = has_grad ? load(grad[at.of[1] + (i + shift) * walk.strides[1]]) : Real(0);
            later = has_next ? slope + load(in[at.of[2] + (i + 1) * walk.strides[2]]) * later : slope;
            T* place = out + at.of[0] + i * walk.strides[0];
            *place = store<T>(load(*place) * later);
        }
    }
}
EXPORT_PLAIN(product_backward_lines)

// The same, a warp a line: its lanes read together, and the sum goes through them one after another.
KERNEL void product_backward_rows(T* out, const T* grad, const T* in, const Walk walk, const Nest<3> nest) {
    u64 warps = all_threads() / WARP, shift = walk.is_exclusive;
    for (u64 line = first_element() / WARP; line < walk.lines; line += warps) {
        Offsets<3> at = offsets_of(nest, line);
        Real later = 0;
        for (u64 first = 0; first < walk.length; first += WARP) {
            u64 from_end = first + threadIdx.x % WARP;
            bool is_in = from_end < walk.length;
            u64 i = is_in ? walk.length - 1 - from_end : 0;
            bool has_grad = is_in && i + shift < walk.length, has_next = is_in && i + 1 < walk.length;
            Real slope = has_grad ? load(grad[at.of[1] + (i + shift) * walk.strides[1]]) : Real(0);
            Real factor = has_next ? load(in[at.of[2] + (i + 1) * walk.strides[2]]) : Real(0);
            Real own = 0;
            for (u32 lane = 0; lane < WARP; lane++) {
                later = __shfl_sync(ALL_LANES, slope, lane) + __shfl_sync(ALL_LANES, factor, lane) * later;
                own = lane == threadIdx.x % WARP ? later : own;
            }
            if (is_in) {
                T* place = out + at.of[0] + i * walk.strides[0];
                *place = store<T>(load(*place) * own);
            }
        }
    }
}
EXPORT(product_backward_rows)
