// Variance: means, and sums of squared deviations from them, along any axes. T is any floating-point type; means are
// Real.
//
// Elements that are taken together are loops of their own, `inner`, for each place of the loops `outer`. The threads of
// a block stand before `across` places, a power of two, and those of one place share its elements. They stand in the
// order that memory has: neighbours have neighbouring places where `is_across`, else neighbouring elements. Where
// places are few there are several rows of blocks, each for a part of the elements. Their sums are stored separately, in
// double precision, and a second kernel adds them in order.
#include "lines.cuh"
#include "rows.cuh"

struct Shape {
    u64 places;
    u64 elements;
    u32 across;
    u32 is_across;
};

// `value(at, element)` of all elements of a place, whose operands lie at `at`, summed; `done(place, at, sum)` gets it.
template <class A, u32 operands, class F, class G>
__device__ inline void sum_places(const Shape& shape, const Nest<operands>& outer, F value, G done) {
    __shared__ A of_thread[THREADS];
    u32 sharing = THREADS / shape.across;
    u32 own = shape.is_across ? threadIdx.x % shape.across : threadIdx.x / sharing;
    u32 rank = shape.is_across ? threadIdx.x / shape.across : threadIdx.x % sharing;
    u32 step = shape.is_across ? shape.across : 1;
    u64 each = (shape.elements + gridDim.y - 1) / gridDim.y;
    u64 end = each * (blockIdx.y + 1) < shape.elements ? each * (blockIdx.y + 1) : shape.elements;
    for (u64 first = (u64)blockIdx.x * shape.across; first < shape.places; first += (u64)gridDim.x * shape.across) {
        u64 place = first + own;
        bool is_there = place < shape.places;
        Offsets<operands> at = offsets_of(outer, is_there ? place : 0);
        A sum = 0;
        if (is_there) {
#pragma unroll 4
            for (u64 element = each * blockIdx.y + rank; element < end; element += sharing) {
                sum += value(at, element);
            }
        }
        of_thread[threadIdx.x] = sum;
        for (u32 distance = sharing / 2; distance > 0; distance /= 2) {
            __syncthreads();
            if (rank < distance) {
                of_thread[threadIdx.x] += of_thread[threadIdx.x + distance * step];
            }
        }
        if (rank == 0 && is_there) {
            done(place, at, of_thread[threadIdx.x]);
        }
        __syncthreads();
    }
}

// `done(place, sum)` gets the sum of each place's parts, which the lanes of a warp share.
template <class F>
__device__ inline void sum_parts(const f64* parts, u32 count, u64 places, F done) {
    Lanes warp{WARP};
    warp.each_row(places, count, [&](u64 place, u64 length) {
        f64 sum = 0;
        for (u64 part = warp.place(); part < length; part += WARP) {
            sum += parts[part * places + place];
        }
        sum = warp.fold<Sum>(sum);
        if (warp.place() == 0 && place < places) {
            done(place, sum);
        }
    });
}

// `outer` is over out and input.
KERNEL void exact_mean(Real* out, f64* parts, const T* in, const Shape shape, const Nest<2> outer, const Nest<1> inner) {
    sum_places<f64>(
        shape, outer,
        [&](const Offsets<2>& at, u64 element) { return (f64)load(in[at.of[1] + offsets_of(inner, element).of[0]]); },
        [&](u64 place, const Offsets<2>& at, f64 sum) {
            if (gridDim.y == 1) {
                out[at.of[0]] = (Real)(sum / (f64)shape.elements);
            } else {
                parts[blockIdx.y * shape.places + place] = sum;
            }
        });
}
EXPORT(exact_mean)

KERNEL void end_exact_mean(Real* out, const f64* parts, u32 count, const Shape shape, const Nest<2> outer) {
    sum_parts(parts, count, shape.places, [&](u64 place, f64 sum) {
        out[offsets_of(outer, place).of[0]] = (Real)(sum / (f64)shape.elements);
    });
}
EXPORT(end_exact_mean)

// `outer` is over out, input and mean.
KERNEL void variance(T* out, f64* parts, const T* in, const Real* mean, const Shape shape, const Nest<3> outer,
                     const Nest<1> inner, f64 scale) {
    sum_places<Real>(
        shape, outer,
        [&](const Offsets<3>& at, u64 element) {
            Real distance = load(in[at.of[1] + offsets_of(inner, element).of[0]]) - mean[at.of[2]];
            return distance * distance;
        },
        [&](u64 place, const Offsets<3>& at, Real sum) {
            if (gridDim.y == 1) {
                out[at.of[0]] = store<T>((Real)scale * sum);
            } else {
                parts[blockIdx.y * shape.places + place] = sum;
            }
        });
}
EXPORT(variance)

KERNEL void end_variance(T* out, const f64* parts, u32 count, const Shape shape, const Nest<3> outer, f64 scale) {
    sum_parts(parts, count, shape.places, [&](u64 place, f64 sum) {
        out[offsets_of(outer, place).of[0]] = store<T>((Real)(scale * sum));
    });
}
EXPORT(end_variance)

// `in` may be `out`. `lines` are over out, grad, input and mean, as many at a time as are 16 bytes of means.
KERNEL void variance_backward(T* out, const T* grad, const T* in, const Real* mean, f64 scale, const Lines<4> lines) {
    Real factor = (Real)scale;
    Share share = share_of_line(lines);
    each_line(lines, [&](const Offsets<4>& at) {
        write_line<16 / sizeof(Real)>(share, line_of(out, lines, at, 0),
                                      [=](T g, T x, Real m) { return store<T>(factor * load(g) * (load(x) - m)); },
                                      line_of(grad, lines, at, 1), line_of(in, lines, at, 2),
                                      line_of(mean, lines, at, 3));
    });
}
EXPORT_PLAIN(variance_backward)
