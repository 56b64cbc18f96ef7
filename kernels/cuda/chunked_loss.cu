// Chunked loss: cross-entropy of some rows of logits, which become their own gradient. T is any floating-point type;
// loss and count are Real.
#include "exponents.cuh"
#include "parts.cuh"

// The number of targets that are not `ignored`, and its inverse. By one block; T is the count's type.
KERNEL void count_targets(T* count, const i64* targets, u64 places, i64 ignored) {
    f64 counted = 0;
#pragma unroll 8
    for (u64 place = threadIdx.x; place < places; place += THREADS) {
        counted += targets[place] != ignored ? 1 : 0;
    }
    counted = fold_block<Sum>(counted);
    if (threadIdx.x == 0) {
        count[0] = store<T>((Real)counted);
        count[1] = store<T>((Real)(1 / (counted > 1 ? counted : 1)));
    }
}
EXPORT(count_targets)

__device__ inline void add_loss(Real* loss, const Real* count, f64 total) {
    *loss = (Real)((f64)*loss + total / (f64)*count);
}

// Adds to the loss, if there is one block; several leave their sums in `parts`.
KERNEL void cross_entropy_in_place(T* logits, Real* loss, f64* parts, const Real* count, const i64* targets, i64 ignored,
                                   Fault* fault, u64 rows, u64 width, u32 lanes) {
    f64 total = 0;
    by_rows(lanes, [&](const auto& team) {
        team.each_row(rows, width, [&](u64 row, u64 length) {
            T* numbers = logits + row * width;
            i64 target = row < rows ? targets[row] : ignored;
            bool counts = target != ignored && (u64)target < width;
            if (target != ignored && !counts && team.place() == 0) {
                tell(fault, target, (i64)width);
            }
            Real log_sum = exponents_of(team, numbers, counts ? length : 0).log_sum();
            walk(team, length, head_of(length, numbers), [&](u64 at, auto some) {
                auto x = get(numbers, at, some);
                for (u32 k = 0; k < some.of; k++) {
                    // The target's logit is read for the loss by the thread that writes over it.
                    bool is_target = (i64)(at + k) == target;
                    if (counts && is_target) {
                        total += log_sum - x.of[k];
                    }
                    x.of[k] = counts ? exponent(x.of[k] - log_sum) - (is_target ? Real(1) : Real(0)) : Real(0);
                }
                put(numbers, at, x);
            });
        });
    });
    total = fold_block<Sum>(total);
    if (threadIdx.x == 0) {
        if (gridDim.x == 1) {
            add_loss(loss, count, total);
        } else {
            parts[blockIdx.x] = total;
        }
    }
}
EXPORT(cross_entropy_in_place)

KERNEL void end_cross_entropy_in_place(Real* loss, const f64* parts, u32 blocks, const Real* count) {
    f64 total = fold_parts<Sum>(parts, blocks, 1, 0);
    if (threadIdx.x == 0) {
        add_loss(loss, count, total);
    }
}
EXPORT(end_cross_entropy_in_place)
