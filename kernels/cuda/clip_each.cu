// Clip each: the norm of many gradients, and their scaling by it, in one launch. T is any floating-point type; each
// lies in order.
#include "block.cuh"
#include "multi_tensor.cuh"

const u32 WIDTH = 16 / sizeof(T);
// Bytes of arguments that tell of tensors.
const u32 BYTES = 4000;
typedef Many<1, tensors_in(BYTES, 1)> Tensors;

// The fold of `value` of all elements of this block's chunk.
template <class Fold, class Value>
__device__ inline f64 fold_chunk(const Tensors& tensors, Value value) {
    Chunk<1> chunk = chunk_of_block(tensors);
    Line<const T> in{chunk.at<T>(0), 1};
    u64 packs = chunk.is_aligned<T, WIDTH>(0) ? chunk.length / WIDTH : 0;
    f64 all = 0;
    for (u64 place = threadIdx.x; place < packs; place += blockDim.x) {
        Pack<T, WIDTH> pack = in.pack<WIDTH>(place);
        for (u32 k = 0; k < WIDTH; k++) {
            all = Fold::of(all, value((f64)load(pack.element[k])));
        }
    }
    for (u64 place = packs * WIDTH + threadIdx.x; place < chunk.length; place += blockDim.x) {
        all = Fold::of(all, value((f64)load(in.at(place))));
    }
    return fold_block<Fold>(all);
}

// The destination of the partial results, one for each block.
struct Norm {
    f64* parts;
    f64 order;
};

#define ADD_NORM(NAME, FOLD, VALUE)                                                      \
    KERNEL void add_norm_##NAME##_each(const Tensors tensors, const Norm norm) {         \
        f64 all = fold_chunk<FOLD>(tensors, [=](f64 x) { return VALUE; });               \
        if (threadIdx.x == 0) {                                                          \
            norm.parts[blockIdx.x] = all;                                                \
        }                                                                                \
    }                                                                                    \
    EXPORT(add_norm_##NAME##_each)

ADD_NORM(squares, Sum, x * x)
ADD_NORM(magnitudes, Sum, fabs(x))
ADD_NORM(powers, Sum, pow(fabs(x), norm.order))
ADD_NORM(largest, Largest, fabs(x))

template <class Function>
__device__ inline void change_chunk(const Tensors& tensors, Function function) {
    Chunk<1> chunk = chunk_of_block(tensors);
    Line<T> out{chunk.at<T>(0), 1};
    write_line<WIDTH>(
        share_of_chunk(chunk, chunk.is_aligned<T, WIDTH>(0)), out,
        [=](T x) { return store<T>(function(load(x))); }, out);
}

struct Clip {
    const f64* norm;
    f64 most;
};

KERNEL void clip_to_norm_each(const Tensors tensors, const Clip clip) {
    f64 share = clip.most / (*clip.norm + 1e-6);
    // Written so that NaN stays NaN.
    Real factor = (Real)(share > 1 ? 1 : share);
    change_chunk(tensors, [=](Real x) { return x * factor; });
}
EXPORT_PLAIN(clip_to_norm_each)

struct Ends {
    f64 least, most;
};

KERNEL void clamp_each(const Tensors tensors, const Ends ends) {
    Real low = (Real)ends.least, high = (Real)ends.most;
    change_chunk(tensors, [=](Real x) { return x < low ? low : x > high ? high : x; });
}
EXPORT_PLAIN(clamp_each)

struct Found {
    f32* found;
};

// All threads that find something write the same number.
KERNEL void find_nonfinite_each(const Tensors tensors, const Found found) {
    f64 count = fold_chunk<Sum>(tensors, [](f64 x) { return x - x != 0 ? 1.0 : 0.0; });
    if (threadIdx.x == 0 && count > 0) {
        *found.found = 1;
    }
}
EXPORT(find_nonfinite_each)
