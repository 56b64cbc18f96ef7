// Softmax: softmax and log-softmax of rows, and the gradients of both. T is any floating-point type.
//
// The output may be the input: each place is read and written by the same thread, after sums are known to all.
#include "exponents.cuh"

template <bool IS_LOG>
__device__ inline void forward(T* out, const T* in, u64 rows, u64 width, u32 lanes) {
    by_rows(lanes, [&](const auto& team) {
        team.each_row(rows, width, [&](u64 row, u64 length) {
            const T* from = in + row * width;
            T* to = out + row * width;
            Exponents all = exponents_of(team, from, length);
            Real of_total = IS_LOG ? log(all.total()) : Real(1) / all.total();
            walk(team, length, head_of(length, to, from), [&](u64 at, auto count) {
                auto x = get(from, at, count);
                for (u32 k = 0; k < count.of; k++) {
                    // The largest first, so that large numbers lose no digits.
                    Real less = x.of[k] - all.largest;
                    x.of[k] = IS_LOG ? less - of_total : exponent(less) * of_total;
                }
                put(to, at, x);
            });
        });
    });
}

template <bool IS_LOG>
__device__ inline void backward(T* out, const T* grad, const T* result, u64 rows, u64 width, u32 lanes) {
    by_rows(lanes, [&](const auto& team) {
        team.each_row(rows, width, [&](u64 row, u64 length) {
            const T *grads = grad + row * width, *results = result + row * width;
            T* to = out + row * width;
            Real sum = 0;
            walk(team, length, head_of(length, grads, results), [&](u64 at, auto count) {
                auto g = get(grads, at, count), y = get(results, at, count);
                for (u32 k = 0; k < count.of; k++) {
                    sum += IS_LOG ? g.of[k] : g.of[k] * y.of[k];
                }
            });
            sum = team.template fold<Sum>(sum);
            walk(team, length, head_of(length, to, grads, results), [&](u64 at, auto count) {
                auto g = get(grads, at, count), y = get(results, at, count);
                for (u32 k = 0; k < count.of; k++) {
                    g.of[k] = IS_LOG ? g.of[k] - exponent(y.of[k]) * sum : y.of[k] * (g.of[k] - sum);
                }
                put(to, at, g);
            });
        });
    });
}

KERNEL void softmax(T* out, const T* in, u64 rows, u64 width, u32 lanes) {
    forward<false>(out, in, rows, width, lanes);
}
EXPORT(softmax)

KERNEL void log_softmax(T* out, const T* in, u64 rows, u64 width, u32 lanes) {
    forward<true>(out, in, rows, width, lanes);
}
EXPORT(log_softmax)

KERNEL void softmax_backward(T* out, const T* grad, const T* result, u64 rows, u64 width, u32 lanes) {
    backward<false>(out, grad, result, rows, width, lanes);
}
EXPORT(softmax_backward)

KERNEL void log_softmax_backward(T* out, const T* grad, const T* result, u64 rows, u64 width, u32 lanes) {
    backward<true>(out, grad, result, rows, width, lanes);
}
EXPORT(log_softmax_backward)
