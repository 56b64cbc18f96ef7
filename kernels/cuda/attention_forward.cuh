// Attention, forward: softmax(query · keyᵀ) · value by tiles of queries, with the logarithm of each row's sum of
// exponents.
#pragma once
#include "attention_split.cuh"
#include "attention_tensor_cores.cuh"
#include "attention_threads.cuh"

// Of each row that a thread has a part of: the largest score so far, and this thread's part of the sum of exponents.
template <u32 ROWS>
struct Softmax {
    Real largest[ROWS];
    Real sums[ROWS];
};

// Converts scores to weights, and scales the previous sums down by as much as the largest score has grown.
template <class Warps, u32 COUNT, u32 WIDTH>
__device__ inline void weigh(Real (&scores)[Warps::ROWS][COUNT], Real (&mixed)[Warps::ROWS][WIDTH],
                             Softmax<Warps::ROWS>& softmax, Real factor) {
#pragma unroll
    for (u32 i = 0; i < Warps::ROWS; i++) {
        Real largest = softmax.largest[i];
#pragma unroll
        for (u32 j = 0; j < COUNT; j++) {
            largest = max(largest, scores[i][j]);
        }
        largest = fold_lanes<Largest, Warps::LANES>(largest);
        // Of a row without a number above −∞, all weights are 0.
        Real origin = largest == -infinity() ? Real(0) : largest * factor;
        Real share = power_of_two(softmax.largest[i] * factor - origin);
        softmax.largest[i] = largest;
        Real sum = softmax.sums[i] * share;
#pragma unroll
        for (u32 j = 0; j < COUNT; j++) {
            scores[i][j] = power_of_two(scores[i][j] * factor - origin);
            sum += scores[i][j];
        }
        softmax.sums[i] = sum;
#pragma unroll
        for (u32 j = 0; j < WIDTH; j++) {
            mixed[i][j] *= share;
        }
    }
}

template <class Warps, u32 WIDTH, u32 KEYS, bool is_held>
__device__ inline void attend(const Rows<T>& out, const Rows<Real>& log_sums, const Rows<const T>& query,
                              const Rows<const T>& key, const Rows<const T>& value, const Sight& sight,
                              const Share& share) {
    const u32 ROWS = Warps::ROWS, TILE_ROWS = Warps::TILE_ROWS, LINE = Line<WIDTH>::length;
    const u32 COUNT = KEYS / Warps::LANES, SUMS = WIDTH / Warps::PARTS / Warps::LANES;
    DYNAMIC_SHARED(T, query_tile);
    T* key_tile = query_tile + TILE_ROWS * LINE;
    T* value_tile = key_tile + KEYS * LINE;
    Real* shown = (Real*)(value_tile + KEYS * LINE);

    u32 first = share.tile * TILE_ROWS, key_head = share.head / sight.heads_a_key;
    // The last query of the tile sees the most, the first the least; the same of this warp's part.
    u32 end = sight.seen(min(first + TILE_ROWS, sight.places) - 1), all_see = sight.seen(first);
    u32 warp_end = sight.seen(first + Warps::warp_row() + Warps::WARP_ROWS - 1);
    u32 width_part = Warps::part() * (WIDTH / Warps::PARTS);
    const T* key_rows = key.at(share.batch, key_head, 0);
    const T* value_rows = value.at(share.batch, key_head, 0);
    fetch<TILE_ROWS, WIDTH>(query_tile, query.at(share.batch, share.head, first), query.place, sight.places - first,
                            sight);
    fetch<KEYS, WIDTH>(key_tile, key_rows, key.place, end, sight);
    wait_for_copies();
    __syncthreads();

    typename Warps::template Left<WIDTH, is_held> left(query_tile);
    left.hold();
    // Of a positive scale, the largest score is the largest product.
    Real given = (Real)sight.scale;
    bool is_early = !(given > Real(0));
    Real scale = is_early ? Real(1) : given;
    Softmax<ROWS> softmax;
    Real mixed[ROWS][SUMS];
#pragma unroll
    for (u32 i = 0; i < ROWS; i++) {
        softmax.largest[i] = -infinity();
        softmax.sums[i] = Real(0);
    }
    clear(mixed);
    for (u32 start = 0; start < end; start += KEYS) {
        wait_for_copies();
        __syncthreads();
        fetch<KEYS, WIDTH>(value_tile, value_rows + start * value.place, value.place, end - start, sight);
        Real scores[ROWS][COUNT];
        bool is_seen = start < warp_end;
        if (is_seen) {
            Warps::template multiply_turned<WIDTH, is_held>(scores, left, key_tile);
        }
        wait_for_copies();
        __syncthreads();
        if (end - start > KEYS) {
            u32 next = start + KEYS;
            fetch<KEYS, WIDTH>(key_tile, key_rows + next * key.place, key.place, end - next, sight);
        }
        if (!is_seen) {
            continue;
        }
        if (is_early) {
#pragma unroll
            for (u32 i = 0; i < ROWS; i++) {
#pragma unroll
                for (u32 j = 0; j < COUNT; j++) {
                    scores[i][j] *= given;
                }
            }
        }
        if (start + KEYS > all_see) {
#pragma unroll
            for (u32 i = 0; i < ROWS; i++) {
                u32 seen = sight.seen(first + Warps::row(i));
#pragma unroll
                for (u32 j = 0; j < COUNT; j++) {
                    scores[i][j] = start + Warps::score_column(j) < seen ? scores[i][j] : -infinity();
                }
            }
        }
        weigh<Warps>(scores, mixed, softmax, scale * Real(LOG2_E));
        Warps::template multiply_weights<WIDTH>(mixed, scores, value_tile + width_part, shown);
    }
#pragma unroll
    for (u32 i = 0; i < ROWS; i++) {
        Real sum = fold_lanes<Sum, Warps::LANES>(softmax.sums[i]);
        u32 place = first + Warps::row(i);
        if (place < sight.places) {
            Real factor = sight.keys == 0 ? Real(0) : Real(1) / sum;
            write_row<Warps>(out.at(share.batch, share.head, place), mixed[i], factor, sight, width_part);
            if (threadIdx.x % Warps::LANES == 0 && Warps::part() == 0) {
                *log_sums.at(share.batch, share.head, place) = softmax.largest[i] * scale + log(sum);
            }
        }
    }
}

#define ATTENTION_FORWARD(PLAN)                                                                                        \
    KERNEL __launch_bounds__(TEAM_THREADS, PLAN::BLOCKS) void attention_forward(                                       \
        const Rows<T> out, const Rows<Real> log_sums, const Rows<const T> query, const Rows<const T> key,              \
        const Rows<const T> value, const Sight sight) {                                                                \
        Share share = share_of_queries(sight, PLAN::Warps::TILE_ROWS);                                                 \
        attend<PLAN::Warps, PLAN::WIDTH, PLAN::COLUMNS, PLAN::IS_HELD>(out, log_sums, query, key, value, sight,        \
                                                                       share);                                         \
    }                                                                                                                  \
    EXPORT(attention_forward)
