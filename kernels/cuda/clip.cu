// Clip: the norm of gradients, and their scaling by it. T is any floating-point type; norms are doubles.
#include "lines.cuh"
#include "parts.cuh"
#include "rows.cuh"

// The fold of `value` of all elements that this block has.
template <class Fold, class F>
__device__ inline f64 fold_elements(const T* in, u64 elements, u32 is_in_order, const Nest<1>& nest, F value) {
    f64 all = 0;
    if (is_in_order) {
        walk(Everyone(), elements, head_of(elements, in), [&](u64 at, auto count) {
            auto x = get(in, at, count);
            for (u32 k = 0; k < count.of; k++) {
                all = Fold::of(all, value((f64)x.of[k]));
            }
        });
    } else {
        for (u64 i = first_element(); i < elements; i += all_threads()) {
            all = Fold::of(all, value((f64)load(in[offsets_of(nest, i).of[0]])));
        }
    }
    return fold_block<Fold>(all);
}

// A single block folds its result into the total; several blocks write theirs to `parts` for `end_norm_…`.
#define ADD_NORM(NAME, FOLD, VALUE)                                                                                 \
    KERNEL void add_norm_##NAME(f64* total, f64* parts, const T* in, u64 elements, u32 is_in_order,                 \
                                const Nest<1> nest, f64 order) {                                                    \
        f64 all = fold_elements<FOLD>(in, elements, is_in_order, nest, [=](f64 x) { return VALUE; });               \
        if (threadIdx.x == 0) {                                                                                     \
            if (gridDim.x == 1) {                                                                                   \
                *total = FOLD::of(*total, all);                                                                     \
            } else {                                                                                                \
                parts[blockIdx.x] = all;                                                                            \
            }                                                                                                       \
        }                                                                                                           \
    }                                                                                                               \
    EXPORT(add_norm_##NAME)

ADD_NORM(squares, Sum, x * x)
ADD_NORM(magnitudes, Sum, fabs(x))
ADD_NORM(powers, Sum, pow(fabs(x), order))
ADD_NORM(largest, Largest, fabs(x))

#define END_NORM(NAME, FOLD)                                                    \
    KERNEL void end_norm_##NAME(f64* total, const f64* parts, u32 blocks) {     \
        f64 all = fold_parts<FOLD>(parts, blocks, 1, 0);                        \
        if (threadIdx.x == 0) {                                                 \
            *total = FOLD::of(*total, all);                                     \
        }                                                                       \
    }                                                                           \
    EXPORT(end_norm_##NAME)

END_NORM(sum, Sum)
END_NORM(largest, Largest)

// By one thread.
KERNEL void finish_norm(f64* total, f64 order) { *total = order == 2 ? sqrt(*total) : pow(*total, 1 / order); }
EXPORT_PLAIN(finish_norm)

// Changes every element.
template <class F>
__device__ inline void change(T* out, const Lines<1>& lines, F function) {
    Share share = share_of_line(lines);
    each_line(lines, [&](const Offsets<1>& at) {
        Line<T> line = line_of(out, lines, at, 0);
        write_line<WIDTH>(share, line, [=](T x) { return store<T>(function(load(x))); }, line);
    });
}

KERNEL void clip_to_norm(T* out, const f64* norm, f64 most, const Lines<1> lines) {
    f64 share = most / (*norm + 1e-6);
    // Written so that NaN stays NaN.
    Real factor = (Real)(share > 1 ? 1 : share);
    change(out, lines, [=](Real x) { return x * factor; });
}
EXPORT_PLAIN(clip_to_norm)

KERNEL void clamp(T* out, f64 least, f64 most, const Lines<1> lines) {
    Real low = (Real)least, high = (Real)most;
    change(out, lines, [=](Real x) { return x < low ? low : x > high ? high : x; });
}
EXPORT_PLAIN(clamp)

// All threads that find something write the same number.
KERNEL void find_nonfinite(f32* found, const T* in, u64 elements, u32 is_in_order, const Nest<1> nest) {
    bool is_found = false;
    if (is_in_order) {
        walk(Everyone(), elements, head_of(elements, in), [&](u64 at, auto count) {
            auto x = get(in, at, count);
            for (u32 k = 0; k < count.of; k++) {
                is_found |= x.of[k] - x.of[k] != Real(0);
            }
        });
    } else {
        for (u64 i = first_element(); i < elements; i += all_threads()) {
            Real x = load(in[offsets_of(nest, i).of[0]]);
            is_found |= x - x != Real(0);
        }
    }
    if (is_found) {
        *found = 1;
    }
}
EXPORT_PLAIN(find_nonfinite)
