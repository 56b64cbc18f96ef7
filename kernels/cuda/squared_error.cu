// Squared error: the squared difference of two tensors, and the gradient. T is any floating-point type.
#include "lines.cuh"
#include "parts.cuh"
#include "rows.cuh"

__device__ inline void end_loss(T* loss, f64 scale, f64 total) { *loss = store<T>((Real)(scale * total)); }

// Each difference in Real, their sum in double precision, since it may be long. One block writes the loss; several
// leave their sums in `parts`.
KERNEL void squared_error(T* loss, f64* parts, const T* left, const T* right, u64 elements, u32 is_in_order,
                          const Nest<2> nest, f64 scale) {
    f64 total = 0;
    if (is_in_order) {
        walk(Everyone(), elements, head_of(elements, left, right), [&](u64 at, auto count) {
            auto l = get(left, at, count), r = get(right, at, count);
            for (u32 k = 0; k < count.of; k++) {
                Real difference = l.of[k] - r.of[k];
                total += difference * difference;
            }
        });
    } else {
        for (u64 i = first_element(); i < elements; i += all_threads()) {
            Offsets<2> at = offsets_of(nest, i);
            Real difference = load(left[at.of[0]]) - load(right[at.of[1]]);
            total += difference * difference;
        }
    }
    total = fold_block<Sum>(total);
    if (threadIdx.x == 0) {
        if (gridDim.x == 1) {
            end_loss(loss, scale, total);
        } else {
            parts[blockIdx.x] = total;
        }
    }
}
EXPORT(squared_error)

KERNEL void end_squared_error(T* loss, const f64* parts, u32 blocks, f64 scale) {
    f64 total = fold_parts<Sum>(parts, blocks, 1, 0);
    if (threadIdx.x == 0) {
        end_loss(loss, scale, total);
    }
}
EXPORT(end_squared_error)

// `left` may be `out`. `lines` are over out, left and right.
KERNEL void squared_error_backward(T* out, const T* left, const T* right, const T* grad, f64 scale,
                                   const Lines<3> lines) {
    Real factor = load(*grad) * (Real)scale;
    Share share = share_of_line(lines);
    each_line(lines, [&](const Offsets<3>& at) {
        write_line<WIDTH>(share, line_of(out, lines, at, 0),
                          [=](T l, T r) { return store<T>(factor * (load(l) - load(r))); },
                          line_of(left, lines, at, 1), line_of(right, lines, at, 2));
    });
}
EXPORT_PLAIN(squared_error_backward)
