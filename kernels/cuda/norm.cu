// Norm: layer normalization of rows, and the gradients. T is any floating-point type; statistics are Real. Without
// means, rows are only divided by their root mean square (RMS normalization).
//
// Gradients may overwrite their inputs, because each place is read and written by the same thread, after the sums are
// known to all.
#include "columns.cuh"

__device__ inline Real middle_of(const Real* mean, u64 row) { return mean != nullptr ? mean[row] : Real(0); }

// A row made normal, times weight plus bias.
template <class Team>
__device__ inline void normalise(const Team& team, T* to, const T* from, const T* weight, const T* bias, Real mean,
                                 Real rstd, u64 length) {
    walk(team, length, head_of(length, to, from, weight, bias), [&](u64 at, auto count) {
        auto x = get(from, at, count);
        auto w = get_or(weight, Real(1), at, count), b = get_or(bias, Real(0), at, count);
        for (u32 k = 0; k < count.of; k++) {
            x.of[k] = (x.of[k] - mean) * rstd * w.of[k] + b.of[k];
        }
        put(to, at, x);
    });
}

KERNEL void layer_norm(T* out, Real* mean, Real* rstd, const T* in, const T* weight, const T* bias, f64 epsilon,
                       u64 rows, u64 width, u32 lanes) {
    by_rows(lanes, [&](const auto& team) {
        team.each_row(rows, width, [&](u64 row, u64 length) {
            const T* from = in + row * width;
            u64 head = head_of(length, from);
            Real middle = 0, squares = 0;
            if (mean != nullptr) {
                Real sum = 0;
                walk(team, length, head, [&](u64 at, auto count) {
                    auto x = get(from, at, count);
                    for (u32 k = 0; k < count.of; k++) {
                        sum += x.of[k];
                    }
                });
                middle = team.template fold<Sum>(sum) / (Real)width;
            }
            walk(team, length, head, [&](u64 at, auto count) {
                auto x = get(from, at, count);
                for (u32 k = 0; k < count.of; k++) {
                    Real distance = x.of[k] - middle;
                    squares += distance * distance;
                }
            });
            squares = team.template fold<Sum>(squares);
            Real over_deviation = Real(1) / sqrt(squares / (Real)width + (Real)epsilon);
            if (team.place() == 0 && row < rows) {
                if (mean != nullptr) {
                    mean[row] = middle;
                }
                rstd[row] = over_deviation;
            }
            normalise(team, out + row * width, from, weight, bias, middle, over_deviation, length);
        });
    });
}
EXPORT(layer_norm)

KERNEL void layer_norm_again(T* out, const Real* mean, const Real* rstd, const T* in, const T* weight, const T* bias,
                             u64 rows, u64 width, u32 lanes) {
    by_rows(lanes, [&](const auto& team) {
        team.each_row(rows, width, [&](u64 row, u64 length) {
            if (row < rows) {
                Real middle = middle_of(mean, row);
                normalise(team, out + row * width, in + row * width, weight, bias, middle, rstd[row], length);
            }
        });
    });
}
EXPORT_PLAIN(layer_norm_again)

KERNEL void layer_norm_backward(T* out, const T* grad, const Real* mean, const Real* rstd, const T* in,
                                const T* weight, u64 rows, u64 width, u32 lanes) {
    by_rows(lanes, [&](const auto& team) {
        team.each_row(rows, width, [&](u64 row, u64 length) {
            const T *grads = grad + row * width, *from = in + row * width;
            T* to = out + row * width;
            Real middle = row < rows ? middle_of(mean, row) : Real(0);
            Real over_deviation = row < rows ? rstd[row] : Real(0);
            u64 head = head_of(length, to, grads, from, weight);
            Real sum = 0, with_normal = 0;
            walk(team, length, head, [&](u64 at, auto count) {
                auto g = get(grads, at, count), x = get(from, at, count), w = get_or(weight, Real(1), at, count);
                for (u32 k = 0; k < count.of; k++) {
                    Real slope = g.of[k] * w.of[k];
                    sum += slope;
                    with_normal += slope * ((x.of[k] - middle) * over_deviation);
                }
            });
            Real of_slope = mean != nullptr ? team.template fold<Sum>(sum) / (Real)width : Real(0);
            Real of_both = team.template fold<Sum>(with_normal) / (Real)width;
            walk(team, length, head, [&](u64 at, auto count) {
                auto g = get(grads, at, count), x = get(from, at, count), w = get_or(weight, Real(1), at, count);
                for (u32 k = 0; k < count.of; k++) {
                    Real normal = (x.of[k] - middle) * over_deviation;
                    g.of[k] = over_deviation * (g.of[k] * w.of[k] - of_slope - normal * of_both);
                }
                put(to, at, g);
            });
        });
    });
}
EXPORT(layer_norm_backward)

// The sums for weight and bias, or those of parts of the rows; see columns.cuh.
KERNEL void layer_norm_backward_affine(const Sums weight, const Sums bias, Real* parts, const T* grad, const Real* mean,
                                       const Real* rstd, const T* in, u64 rows, u64 width, u32 is_wide) {
    by_columns(is_wide, [&](auto count) {
        sum_columns<2>(
            count, Part::of(rows), width,
            [&](u64 row, u64 at, auto& sums) {
                auto g = get(grad + row * width, at, count), x = get(in + row * width, at, count);
                Real middle = middle_of(mean, row), over_deviation = rstd[row];
                for (u32 k = 0; k < count.of; k++) {
                    sums[0].of[k] += g.of[k] * (x.of[k] - middle) * over_deviation;
                    sums[1].of[k] += g.of[k];
                }
            },
            [&](u32 which, u64 column, Real sum) { put_or_part(which == 0 ? weight : bias, parts, which, column, width, sum); });
    });
}
EXPORT(layer_norm_backward_affine)

ADD_PARTS(layer_norm_add_parts)
