// Loss: cross-entropy from logits `[examples, classes, places]`, and its gradient. T is any floating-point type, of
// logits and loss; statistics and the count are Real.
#include "exponents.cuh"
#include "parts.cuh"

// The logarithm of each place's sum of exponents, where the classes of a place lie one after another.
KERNEL void log_sums_of_rows(Real* statistics, const T* logits, u64 rows, u64 width, u32 lanes) {
    by_rows(lanes, [&](const auto& team) {
        team.each_row(rows, width, [&](u64 row, u64 length) {
            Exponents all = exponents_of(team, logits + row * width, length);
            if (team.place() == 0 && row < rows) {
                statistics[row] = all.log_sum();
            }
        });
    });
}
EXPORT(log_sums_of_rows)

// Where the logit of class 0 lies, for a place counted through all examples; those of other classes follow `places` on.
__device__ inline u64 first_class(u64 place, u64 classes, u64 places) {
    Division split = divide(place, places);
    return split.quotient * classes * places + split.rest;
}

// The same, where places lie one after another: neighbouring threads have neighbouring places. The threads of a block
// are cut into `slices`, a power of two, which share the classes.
KERNEL void log_sums_of_places(Real* statistics, const T* logits, u64 all_places, u64 classes, u64 places, u32 slices) {
    __shared__ Real largest[THREADS], sum[THREADS];
    u32 at_once = THREADS / slices, slice = threadIdx.x / at_once;
    for (u64 first = (u64)blockIdx.x * at_once; first < all_places; first += (u64)gridDim.x * at_once) {
        u64 place = first + threadIdx.x % at_once;
        Exponents own = Exponents::none();
        if (place < all_places) {
            const T* line = logits + first_class(place, classes, places);
            const u32 some = 4;
            u64 at = slice;
            for (; at + (some - 1) * slices < classes; at += some * slices) {
                Reals<some> x;
                for (u32 k = 0; k < some; k++) {
                    x.of[k] = load(line[(at + k * slices) * places]);
                }
                own.add(x);
            }
            for (; at < classes; at += slices) {
                own.add(Reals<1>{load(line[at * places])});
            }
        }
        largest[threadIdx.x] = own.largest;
        sum[threadIdx.x] = own.sum;
        __syncthreads();
        if (slice == 0 && place < all_places) {
            for (u32 other = threadIdx.x + at_once; other < THREADS; other += at_once) {
                own.join({largest[other], sum[other]});
            }
            statistics[place] = own.log_sum();
        }
        __syncthreads();
    }
}
EXPORT(log_sums_of_places)

__device__ inline void end_loss(T* loss, Real* count, f64 total, f64 counted) {
    *loss = store<T>((Real)(total / counted));
    *count = (Real)counted;
}

// The mean over places whose target is not `ignored`, by one block; several leave sum and number of theirs in `parts`.
KERNEL void cross_entropy(T* loss, Real* count, f64* parts, const T* logits, const Real* statistics, const i64* targets,
                          u64 all_places, u64 classes, u64 places, i64 ignored, Fault* fault) {
    // Places that a thread looks up at a time, since each has to wait for its target.
    const u32 some = 4;
    f64 total = 0, counted = 0;
    for (u64 first = first_element(); first < all_places; first += some * all_threads()) {
        i64 target[some];
        Real own[some];
        for (u32 k = 0; k < some; k++) {
            u64 place = first + k * all_threads();
            target[k] = place < all_places ? targets[place] : ignored;
        }
        for (u32 k = 0; k < some; k++) {
            u64 place = first + k * all_threads();
            bool is_class = target[k] != ignored && (u64)target[k] < classes;
            u64 at = is_class ? first_class(place, classes, places) + target[k] * places : 0;
            own[k] = is_class ? statistics[place] - load(logits[at]) : Real(0);
        }
        for (u32 k = 0; k < some; k++) {
            if (target[k] == ignored) {
                continue;
            }
            if ((u64)target[k] >= classes) {
                tell(fault, target[k], (i64)classes);
            }
            total += own[k];
            counted += 1;
        }
    }
    total = fold_block<Sum>(total);
    counted = fold_block<Sum>(counted);
    if (threadIdx.x == 0) {
        if (gridDim.x == 1) {
            end_loss(loss, count, total, counted);
        } else {
            parts[2 * blockIdx.x] = total;
            parts[2 * blockIdx.x + 1] = counted;
        }
    }
}
EXPORT(cross_entropy)

KERNEL void end_cross_entropy(T* loss, Real* count, const f64* parts, u32 blocks) {
    f64 total = fold_parts<Sum>(parts, blocks, 2, 0);
    f64 counted = fold_parts<Sum>(parts + 1, blocks, 2, 0);
    if (threadIdx.x == 0) {
        end_loss(loss, count, total, counted);
    }
}
EXPORT(end_cross_entropy)

// The gradient of a logit, which may be written over it.
__device__ inline Real slope(Real x, Real log_sum, bool is_target, Real share) {
    return (exponent(x - log_sum) - (is_target ? Real(1) : Real(0))) * share;
}

KERNEL void cross_entropy_backward_of_rows(T* out, const T* logits, const T* grad, const Real* statistics,
                                           const Real* count, const i64* targets, i64 ignored, u64 rows, u64 width,
                                           u32 lanes) {
    Real share = load(*grad) / *count;
    by_rows(lanes, [&](const auto& team) {
        team.each_row(rows, width, [&](u64 row, u64 length) {
            if (row >= rows) {
                return;
            }
            const T* from = logits + row * width;
            T* to = out + row * width;
            i64 target = targets[row];
            Real log_sum = statistics[row];
            walk(team, length, head_of(length, to, from), [&](u64 at, auto count) {
                auto x = get(from, at, count);
                for (u32 k = 0; k < count.of; k++) {
                    x.of[k] = target == ignored ? Real(0) : slope(x.of[k], log_sum, (i64)(at + k) == target, share);
                }
                put(to, at, x);
            });
        });
    });
}
EXPORT_PLAIN(cross_entropy_backward_of_rows)

// Several places of a class at a time, where that does not go beyond an example.
template <u32 n>
__device__ inline void slopes_of_places(Count<n> some, T* out, const T* logits, Real share, const Real* statistics,
                                        const i64* targets, i64 ignored, u64 elements, u64 classes, u64 places) {
    for (u64 i = first_element(); i < elements / n; i += all_threads()) {
        Division line = divide(i * n, places);
        Division example = divide(line.quotient, classes);
        u64 place = example.quotient * places + line.rest;
        auto x = get(logits, i * n, some);
        for (u32 k = 0; k < n; k++) {
            i64 target = targets[place + k];
            bool is_target = target == (i64)example.rest;
            x.of[k] = target == ignored ? Real(0) : slope(x.of[k], statistics[place + k], is_target, share);
        }
        put(out, i * n, x);
    }
}

KERNEL void cross_entropy_backward_of_places(T* out, const T* logits, const T* grad, const Real* statistics,
                                             const Real* count, const i64* targets, i64 ignored, u64 elements,
                                             u64 classes, u64 places, u32 is_wide) {
    Real share = load(*grad) / *count;
    if (is_wide) {
        slopes_of_places(Count<WIDTH>(), out, logits, share, statistics, targets, ignored, elements, classes, places);
    } else {
        slopes_of_places(Count<1>(), out, logits, share, statistics, targets, ignored, elements, classes, places);
    }
}
EXPORT_PLAIN(cross_entropy_backward_of_places)
