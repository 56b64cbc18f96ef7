// Batch norm: normalizes the channels of `[batch, channels, places]` over all examples and places, and computes the
// gradients. T is any floating-point type; statistics and sums are Real.
//
// A channel is one line of places for each example. Where lines are long, blocks go over the lines of one channel
// (`…_of_lines`); where they are a few bytes, over columns of the matrix `[batch, channels · places]`, since only that
// reads memory in order (`…_of_columns`). Either way a channel may be cut into pieces, whose sums a second kernel puts
// together in order: parts of the lines, or parts of the rows of each of the channel's columns.
#include "columns.cuh"

struct Size {
    u64 batch;
    u64 channels;
    u64 places;
};

// Calls `f(at, line)` for the packs that this thread has among a part of a channel.
template <u32 n, class F>
__device__ inline void walk_channel(Count<n>, const Size& size, Part part, u64 channel, F f) {
    for (u64 pack = part.first + threadIdx.x; pack < part.end; pack += THREADS) {
        Division example = divide(pack * n, size.places);
        u64 line = example.quotient * size.channels + channel;
        f(line * size.places + example.rest, line);
    }
}

// The number of packs of a channel.
template <u32 n>
__device__ inline u64 packs_of(Count<n>, const Size& size) {
    return size.batch * size.places / n;
}

// The destinations of the measured statistics. The running statistics may be null.
struct Measured {
    Real* mean;
    Real* rstd;
    Real* running_mean;
    Real* running_variance;
    f64 momentum;
    f64 epsilon;

    __device__ void keep(u64 channel, Real middle, Real squares, f64 count) const {
        Real spread = squares / (Real)count;
        mean[channel] = middle;
        rstd[channel] = Real(1) / sqrt(spread + (Real)epsilon);
        if (running_mean != nullptr) {
            Real share = (Real)momentum, rest = (Real)(1 - momentum);
            running_mean[channel] = rest * running_mean[channel] + share * middle;
            // The running variance is the estimate for the population that the batch was drawn from.
            Real unbiased = spread * (Real)(count / (count - 1));
            running_variance[channel] = rest * running_variance[channel] + share * unbiased;
        }
    }
};

// Mean and squared distances of a piece: of a whole channel, or left for `end_measure`.
KERNEL void measure_of_lines(const Measured to, Real* means, Real* squares, const T* in, const Size size, u32 is_wide) {
    u64 channel = blockIdx.x;
    by_columns(is_wide, [&](auto some) {
        Part part = Part::of(packs_of(some, size));
        Real count = (Real)((part.end - part.first) * some.of);
        Real sum = 0, distances = 0;
        walk_channel(some, size, part, channel, [&](u64 at, u64) {
            auto x = get(in, at, some);
            for (u32 k = 0; k < some.of; k++) {
                sum += x.of[k];
            }
        });
        Real mean = fold_block<Sum>(sum) / (count > Real(1) ? count : Real(1));
        walk_channel(some, size, part, channel, [&](u64 at, u64) {
            auto x = get(in, at, some);
            for (u32 k = 0; k < some.of; k++) {
                distances += (x.of[k] - mean) * (x.of[k] - mean);
            }
        });
        distances = fold_block<Sum>(distances);
        if (threadIdx.x == 0) {
            if (gridDim.y == 1) {
                to.keep(channel, mean, distances, (f64)(size.batch * size.places));
            } else {
                u64 piece = blockIdx.y * size.channels + channel;
                means[piece] = mean;
                squares[piece] = distances;
            }
        }
    });
}
EXPORT(measure_of_lines)

KERNEL void measure_of_columns(Real* means, Real* squares, const T* in, const Size size, u32 is_wide) {
    u64 columns = size.channels * size.places;
    Part part = Part::of(size.batch);
    Real count = part.end > part.first ? (Real)(part.end - part.first) : Real(1);
    by_columns(is_wide, [&](auto some) {
        sum_columns<1>(
            some, part, columns,
            [&](u64 row, u64 column, auto& sums) {
                auto x = get(in + row * columns, column, some);
                for (u32 k = 0; k < some.of; k++) {
                    sums[0].of[k] += x.of[k];
                }
            },
            [&](u32, u64 column, Real sum) { means[blockIdx.y * columns + column] = sum / count; });
        __syncthreads();
        sum_columns<1>(
            some, part, columns,
            [&](u64 row, u64 column, auto& sums) {
                auto x = get(in + row * columns, column, some);
                for (u32 k = 0; k < some.of; k++) {
                    Real distance = x.of[k] - means[blockIdx.y * columns + column + k];
                    sums[0].of[k] += distance * distance;
                }
            },
            [&](u32, u64 column, Real sum) { squares[blockIdx.y * columns + column] = sum; });
    });
}
EXPORT(measure_of_columns)

// The layout of a channel's pieces: `parts` rows of `columns` for each channel. A part has so many of `elements`
// numbers as `Part` gives it, `in_one` at a time.
struct Pieces {
    u64 parts;
    u64 columns;
    u64 elements;
    u64 in_one;

    __device__ u64 count() const { return parts * columns; }

    __device__ u64 place(u64 piece, u64 channel, u64 channels) const {
        Division part = divide(piece, columns);
        return (part.quotient * channels + channel) * columns + part.rest;
    }

    __device__ Real numbers(u64 piece) const {
        u64 each = (elements + parts - 1) / parts, first = divide(piece, columns).quotient * each;
        u64 left = first < elements ? elements - first : 0;
        return (Real)((left < each ? left : each) * in_one);
    }
};

// A channel's mean and squared distances from those of its pieces.
KERNEL void end_measure(const Measured to, const Real* means, const Real* squares, const Pieces pieces, u64 channels,
                        u32 lanes) {
    f64 all = (f64)(pieces.elements * pieces.in_one * pieces.columns);
    by_rows(lanes, [&](const auto& team) {
        team.each_row(channels, pieces.count(), [&](u64 channel, u64 count) {
            Real sum = 0, distances = 0;
            for (u64 piece = team.place(); piece < count; piece += team.size()) {
                sum += pieces.numbers(piece) * means[pieces.place(piece, channel, channels)];
            }
            Real mean = team.template fold<Sum>(sum) / (Real)all;
            for (u64 piece = team.place(); piece < count; piece += team.size()) {
                u64 place = pieces.place(piece, channel, channels);
                Real apart = means[place] - mean;
                distances += squares[place] + pieces.numbers(piece) * apart * apart;
            }
            distances = team.template fold<Sum>(distances);
            if (team.place() == 0 && channel < channels) {
                to.keep(channel, mean, distances, all);
            }
        });
    });
}
EXPORT(end_measure)

// Means, and 1 / deviation or, if `is_variance`, the variance.
struct Statistics {
    const Real* mean;
    const Real* spread;
    u64 is_variance;
    f64 epsilon;
    // Number of channels of an example that share a statistic; 0 where all examples share those of a channel.
    u64 shared;

    __device__ Real rstd(u64 place) const {
        return is_variance ? Real(1) / sqrt(spread[place] + (Real)epsilon) : spread[place];
    }

    // Where the statistics of a line of places are.
    __device__ u64 place(u64 line, u64 channel) const { return shared ? quotient(line, shared) : channel; }
};

__device__ inline Real of_channel(const T* parameter, u64 channel, Real otherwise) {
    return parameter != nullptr ? load(parameter[channel]) : otherwise;
}

// Calls `f(at, line, channel)` for each of this thread's packs of all elements.
template <u32 n, class F>
__device__ inline void walk_all(Count<n>, const Size& size, F f) {
    u64 packs = size.batch * size.channels * size.places / n;
    for (u64 pack = first_element(); pack < packs; pack += all_threads()) {
        u64 line = divide(pack * n, size.places).quotient;
        f(pack * n, line, divide(line, size.channels).rest);
    }
}

KERNEL void batch_norm(T* out, const T* in, const Statistics known, const T* weight, const T* bias, const Size size,
                       u32 is_wide) {
    by_columns(is_wide, [&](auto some) {
        walk_all(some, size, [&](u64 at, u64 line, u64 channel) {
            u64 place = known.place(line, channel);
            Real mean = known.mean[place], rstd = known.rstd(place);
            Real w = of_channel(weight, channel, Real(1)), b = of_channel(bias, channel, Real(0));
            auto x = get(in, at, some);
            for (u32 k = 0; k < some.of; k++) {
                x.of[k] = (x.of[k] - mean) * rstd * w + b;
            }
            put(out, at, x);
        });
    });
}
EXPORT_PLAIN(batch_norm)

// Of a part of a channel, the sum of gradients, and of each times its normalised number, which is 0 without `in`; for
// all threads of a block.
template <u32 n>
__device__ inline void sum_slopes(Count<n> some, Real (&sums)[2], const T* grad, const T* in, const Statistics& known,
                                  const Size& size, Part part, u64 channel) {
    Real sum = 0, with_normal = 0;
    walk_channel(some, size, part, channel, [&](u64 at, u64 line) {
        u64 place = known.place(line, channel);
        Real mean = known.mean[place], rstd = known.rstd(place);
        auto g = get(grad, at, some), x = get_or(in, Real(0), at, some);
        for (u32 k = 0; k < n; k++) {
            sum += g.of[k];
            with_normal += in != nullptr ? g.of[k] * ((x.of[k] - mean) * rstd) : Real(0);
        }
    });
    sums[0] = fold_block<Sum>(sum);
    sums[1] = fold_block<Sum>(with_normal);
}

// Adds to bias and weight, as far as they are not null, or leaves the sums of pieces for `end_slopes`.
KERNEL void slopes_of_lines(T* weight, T* bias, Real* parts, const T* grad, const T* in, const Statistics known,
                            const Size size, u32 is_wide) {
    u64 channel = blockIdx.x;
    by_columns(is_wide, [&](auto some) {
        Real sums[2];
        sum_slopes(some, sums, grad, in, known, size, Part::of(packs_of(some, size)), channel);
        if (threadIdx.x == 0) {
            put_or_part(Sums{bias, 1}, parts, 0, channel, size.channels, sums[0]);
            put_or_part(Sums{weight, 1}, parts, 1, channel, size.channels, sums[1]);
        }
    });
}
EXPORT(slopes_of_lines)

KERNEL void slopes_of_columns(Real* parts, const T* grad, const T* in, const Statistics known, const Size size,
                              u32 is_wide) {
    u64 columns = size.channels * size.places;
    by_columns(is_wide, [&](auto some) {
        sum_columns<2>(
            some, Part::of(size.batch), columns,
            [&](u64 row, u64 column, auto& sums) {
                u64 at = row * columns + column;
                auto g = get(grad, at, some), x = get_or(in, Real(0), at, some);
                for (u32 k = 0; k < some.of; k++) {
                    u64 channel = divide(column + k, size.places).quotient;
                    u64 place = known.place(row * size.channels + channel, channel);
                    Real normal = (x.of[k] - known.mean[place]) * known.rstd(place);
                    sums[0].of[k] += g.of[k];
                    sums[1].of[k] += in != nullptr ? g.of[k] * normal : Real(0);
                }
            },
            [&](u32 which, u64 column, Real sum) {
                parts[place_of_part(which, blockIdx.y, gridDim.y, column, columns)] = sum;
            });
    });
}
EXPORT(slopes_of_columns)

// Adds each channel's sums to bias and weight, or writes their means if `means` is not null.
KERNEL void end_slopes(T* weight, T* bias, Real* means, const Real* parts, const Pieces pieces, u64 channels, u32 lanes) {
    Real all = (Real)(pieces.elements * pieces.in_one * pieces.columns);
    by_rows(lanes, [&](const auto& team) {
        team.each_row(channels, pieces.count(), [&](u64 channel, u64 count) {
            for (u32 which = 0; which < 2; which++) {
                const Real* own = parts + which * pieces.count() * channels;
                Real sum = 0;
                for (u64 piece = team.place(); piece < count; piece += team.size()) {
                    sum += own[pieces.place(piece, channel, channels)];
                }
                sum = team.template fold<Sum>(sum);
                if (team.place() == 0 && channel < channels) {
                    if (means != nullptr) {
                        means[which * channels + channel] = sum / all;
                    } else {
                        Sums{which == 0 ? bias : weight, 1}.put(channel, sum);
                    }
                }
            }
        });
    });
}
EXPORT(end_slopes)

// Writes the gradients of a pack, perhaps over the result's. Where the statistics are the batch's own, they take away
// two means; without `in`, they were given.
template <u32 n>
__device__ inline void put_slopes(Count<n> some, T* out, const T* grad, const T* in, u64 at, Real mean, Real rstd,
                                  Real weight, Real of_grad, Real of_both) {
    auto g = get(grad, at, some), x = get_or(in, Real(0), at, some);
    for (u32 k = 0; k < n; k++) {
        Real taken = in != nullptr ? of_grad + (x.of[k] - mean) * rstd * of_both : Real(0);
        g.of[k] = rstd * weight * (g.of[k] - taken);
    }
    put(out, at, g);
}

KERNEL void batch_norm_backward(T* out, const T* grad, const T* in, const Statistics known, const T* weight,
                                const Real* means, const Size size, u32 is_wide) {
    by_columns(is_wide, [&](auto some) {
        walk_all(some, size, [&](u64 at, u64, u64 channel) {
            Real of_grad = means != nullptr ? means[channel] : Real(0);
            Real of_both = means != nullptr ? means[size.channels + channel] : Real(0);
            put_slopes(some, out, grad, in, at, known.mean[channel], known.rstd(channel),
                       of_channel(weight, channel, Real(1)), of_grad, of_both);
        });
    });
}
EXPORT_PLAIN(batch_norm_backward)

// All at once, each channel by one block.
KERNEL void batch_norm_backward_of_channels(T* out, const T* grad, const T* in, const Statistics known, const T* weight,
                                            const Size size, u32 is_wide) {
    Real count = (Real)(size.batch * size.places);
    for (u64 channel = blockIdx.x; channel < size.channels; channel += gridDim.x) {
        by_columns(is_wide, [&](auto some) {
            Part all{0, packs_of(some, size)};
            Real sums[2];
            sum_slopes(some, sums, grad, in, known, size, all, channel);
            Real mean = known.mean[channel], rstd = known.rstd(channel), w = of_channel(weight, channel, Real(1));
            walk_channel(some, size, all, channel, [&](u64 at, u64) {
                put_slopes(some, out, grad, in, at, mean, rstd, w, sums[0] / count, sums[1] / count);
            });
        });
    }
}
EXPORT(batch_norm_backward_of_channels)
