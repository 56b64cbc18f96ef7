// RMS norm: rows divided by their root mean square, and the gradients. T is any floating-point type; statistics are
// Real.
//
// Gradients may be written over what they are made from: each place is read and written by the same thread, after sums
// are known to all.
#include "columns.cuh"

template <class Team>
__device__ inline void scale(const Team& team, T* to, const T* from, const T* weight, Real inverse, u64 length) {
    walk(team, length, head_of(length, to, from, weight), [&](u64 at, auto count) {
        auto x = get(from, at, count), w = get_or(weight, Real(1), at, count);
        for (u32 k = 0; k < count.of; k++) {
            x.of[k] = x.of[k] * inverse * w.of[k];
        }
        put(to, at, x);
    });
}

KERNEL void rms_norm(T* out, Real* inverse, const T* in, const T* weight, f64 epsilon, u64 rows, u64 width, u32 lanes) {
    by_rows(lanes, [&](const auto& team) {
        team.each_row(rows, width, [&](u64 row, u64 length) {
            const T* from = in + row * width;
            Real squares = 0;
            walk(team, length, head_of(length, from), [&](u64 at, auto count) {
                auto x = get(from, at, count);
                for (u32 k = 0; k < count.of; k++) {
                    squares += x.of[k] * x.of[k];
                }
            });
            squares = team.template fold<Sum>(squares);
            Real over_root = Real(1) / sqrt(squares / (Real)width + (Real)epsilon);
            if (team.place() == 0 && row < rows) {
                inverse[row] = over_root;
            }
            scale(team, out + row * width, from, weight, over_root, length);
        });
    });
}
EXPORT(rms_norm)

KERNEL void rms_norm_again(T* out, const Real* inverse, const T* in, const T* weight, u64 rows, u64 width, u32 lanes) {
    by_rows(lanes, [&](const auto& team) {
        team.each_row(rows, width, [&](u64 row, u64 length) {
            if (row < rows) {
                scale(team, out + row * width, in + row * width, weight, inverse[row], length);
            }
        });
    });
}
EXPORT_PLAIN(rms_norm_again)

KERNEL void rms_norm_backward(T* out, const T* grad, const Real* inverse, const T* in, const T* weight, u64 rows,
                              u64 width, u32 lanes) {
    by_rows(lanes, [&](const auto& team) {
        team.each_row(rows, width, [&](u64 row, u64 length) {
            const T *grads = grad + row * width, *from = in + row * width;
            T* to = out + row * width;
            Real over_root = row < rows ? inverse[row] : Real(0);
            u64 head = head_of(length, to, grads, from, weight);
            Real sum = 0;
            walk(team, length, head, [&](u64 at, auto count) {
                auto g = get(grads, at, count), x = get(from, at, count), w = get_or(weight, Real(1), at, count);
                for (u32 k = 0; k < count.of; k++) {
                    sum += g.of[k] * w.of[k] * x.of[k] * over_root;
                }
            });
            Real mean = team.template fold<Sum>(sum) / (Real)width;
            walk(team, length, head, [&](u64 at, auto count) {
                auto g = get(grads, at, count), x = get(from, at, count), w = get_or(weight, Real(1), at, count);
                for (u32 k = 0; k < count.of; k++) {
                    g.of[k] = over_root * (g.of[k] * w.of[k] - x.of[k] * over_root * mean);
                }
                put(to, at, g);
            });
        });
    });
}
EXPORT(rms_norm_backward)

// The sums for the weight, or those of parts of the rows; see columns.cuh.
KERNEL void rms_norm_backward_weight(const Sums weight, Real* parts, const T* grad, const Real* inverse, const T* in, u64 rows,
                                     u64 width, u32 is_wide) {
    by_columns(is_wide, [&](auto count) {
        sum_columns<1>(
            count, Part::of(rows), width,
            [&](u64 row, u64 at, auto& sums) {
                auto g = get(grad + row * width, at, count), x = get(in + row * width, at, count);
                Real over_root = inverse[row];
                for (u32 k = 0; k < count.of; k++) {
                    sums[0].of[k] += g.of[k] * x.of[k] * over_root;
                }
            },
            [&](u32, u64 column, Real sum) { put_or_part(weight, parts, 0, column, width, sum); });
    });
}
EXPORT(rms_norm_backward_weight)

ADD_PARTS(rms_norm_add_parts)
