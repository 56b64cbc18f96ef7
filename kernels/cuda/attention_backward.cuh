// Attention, backward: the gradients of keys and values by tiles of keys, then those of queries by tiles of queries.
//
// Both compute weights again from the logarithms of the rows' sums. With g the result's gradient, a weight's own
// gradient is g · valueᵀ, and a score's is the weight times (that less delta), delta the row's sum of g · result.
#pragma once
#include "attention_split.cuh"
#include "attention_tensor_cores.cuh"
#include "attention_threads.cuh"

// The inputs of backward.
struct Known {
    Rows<const T> grad;
    Rows<const Real> log_sums;
    Rows<const Real> deltas;
    Rows<const T> query;
    Rows<const T> key;
    Rows<const T> value;
};

// The logarithm of a row's sum of exponents, and its delta.
struct RowNumbers {
    Real log_sum;
    Real delta;
};

// Makes a product of query and key its weight, and the weight's gradient the score's.
__device__ inline void differentiate(Real& score, Real& slope, const RowNumbers& row, Real factor, bool sees) {
    Real weight = sees ? power_of_two(score * factor - row.log_sum * Real(LOG2_E)) : Real(0);
    slope = weight * (slope - row.delta);
    score = weight;
}

// Begins to fetch the numbers of `COUNT` rows.
template <u32 COUNT>
__device__ inline void fetch_numbers(RowNumbers* numbers, const Known& known, const Share& at, u32 first,
                                     const Sight& sight) {
    for (u32 row = threadIdx.x; row < COUNT; row += TEAM_THREADS) {
        bool is_there = first + row < sight.places;
        u32 place = is_there ? first + row : first;
        copy_later<sizeof(Real)>(&numbers[row].log_sum, known.log_sums.at(at.batch, at.head, place), is_there);
        copy_later<sizeof(Real)>(&numbers[row].delta, known.deltas.at(at.batch, at.head, place), is_there);
    }
}

// The differences between the gradients of keys and of values.
struct Target {
    Rows<T> out;
    Real* waiting;
    u32 part;
    u32 which;
};

// Writes rows of a tile, or leaves them to be added to other parts.
template <class Warps, u32 COUNT>
__device__ inline void write_tile(const Target& target, const Real (&sums)[Warps::ROWS][COUNT], Real factor,
                                  const Sight& sight, const Share& share, u32 first_row, u32 first_column) {
#pragma unroll
    for (u32 i = 0; i < Warps::ROWS; i++) {
        u32 place = first_row + Warps::row(i);
        if (place >= sight.keys) {
            continue;
        }
        if (sight.parts == 1) {
            write_row<Warps>(target.out.at(share.batch, share.head, place), sums[i], factor, sight, first_column);
            continue;
        }
        Real* row = waiting_row(target.waiting, sight, share, target.part, target.which, place);
#pragma unroll
        for (u32 j = 0; j < COUNT; j++) {
            u32 column = first_column + Warps::width_column(j);
            if (column < sight.width) {
                row[column] = sums[i][j] * factor;
            }
        }
    }
}

// Gradients of a tile of keys and their values, as far as they come through the heads of one part.
template <class Warps, u32 WIDTH, u32 QUERIES>
__device__ inline void differentiate_keys(const Rows<T>& key_grad, const Rows<T>& value_grad, Real* waiting,
                                          const Known& known, const Sight& sight, const Share& share, u32 part) {
    const u32 ROWS = Warps::ROWS, TILE_ROWS = Warps::TILE_ROWS, LINE = Line<WIDTH>::length;
    const u32 COUNT = QUERIES / Warps::LANES, SUMS = WIDTH / Warps::PARTS / Warps::LANES;
    DYNAMIC_SHARED(T, key_tile);
    T* value_tile = key_tile + TILE_ROWS * LINE;
    T* query_tile = value_tile + TILE_ROWS * LINE;
    T* grad_tile = query_tile + QUERIES * LINE;
    RowNumbers* numbers = (RowNumbers*)(grad_tile + QUERIES * LINE);
    Real* shown = (Real*)(numbers + QUERIES);

    u32 first = share.tile * TILE_ROWS, left_over = sight.keys - first;
    // The heads of this part, and the first query that sees a key of the tile, less some for whole tiles.
    Share at = share;
    at.head = share.head * sight.heads_a_key + (u32)((u64)sight.heads_a_key * part / sight.parts);
    u32 end_head = share.head * sight.heads_a_key + (u32)((u64)sight.heads_a_key * (part + 1) / sight.parts);
    u32 begin = sight.is_causal ? first / QUERIES * QUERIES : 0;
    u32 width_part = Warps::part() * (WIDTH / Warps::PARTS);
    Real of_key[ROWS][SUMS], of_value[ROWS][SUMS];
    clear(of_key);
    clear(of_value);
    u32 start = begin;
    bool is_left = begin < sight.places && at.head < end_head;
    if (is_left) {
        fetch<TILE_ROWS, WIDTH>(key_tile, known.key.at(share.batch, share.head, first), known.key.place, left_over,
                                sight);
        fetch<TILE_ROWS, WIDTH>(value_tile, known.value.at(share.batch, share.head, first), known.value.place,
                                left_over, sight);
        fetch<QUERIES, WIDTH>(grad_tile, known.grad.at(at.batch, at.head, start), known.grad.place,
                              sight.places - start, sight);
        fetch_numbers<QUERIES>(numbers, known, at, start, sight);
    }
    typename Warps::template Left<WIDTH, false> keys(key_tile), values(value_tile);
    while (is_left) {
        wait_for_copies();
        __syncthreads();
        fetch<QUERIES, WIDTH>(query_tile, known.query.at(at.batch, at.head, start), known.query.place,
                              sight.places - start, sight);
        Real scores[ROWS][COUNT], slopes[ROWS][COUNT];
        // Whether any of these queries sees a key of this warp.
        bool is_seen = !sight.is_causal || start + QUERIES > first + Warps::warp_row();
        if (is_seen) {
            Warps::template multiply_turned<WIDTH, false>(slopes, values, grad_tile);
        }
        wait_for_copies();
        __syncthreads();
        if (is_seen) {
            Warps::template multiply_turned<WIDTH, false>(scores, keys, query_tile);
            bool is_masked = sight.is_causal && start < first + TILE_ROWS;
            Real factor = (Real)(sight.scale * LOG2_E);
#pragma unroll
            for (u32 j = 0; j < COUNT; j++) {
                u32 column = Warps::score_column(j);
                RowNumbers row = numbers[column];
#pragma unroll
                for (u32 i = 0; i < ROWS; i++) {
                    bool sees = !is_masked || start + column >= first + Warps::row(i);
                    differentiate(scores[i][j], slopes[i][j], row, factor, sees);
                }
            }
            Warps::template multiply_weights<WIDTH>(of_value, scores, grad_tile + width_part, shown);
        }
        start += QUERIES;
        if (start >= sight.places) {
            start = begin;
            at.head++;
        }
        is_left = at.head < end_head;
        __syncthreads();
        if (is_left) {
            fetch<QUERIES, WIDTH>(grad_tile, known.grad.at(at.batch, at.head, start), known.grad.place,
                                  sight.places - start, sight);
            fetch_numbers<QUERIES>(numbers, known, at, start, sight);
        }
        if (is_seen) {
            Warps::template multiply_weights<WIDTH>(of_key, slopes, query_tile + width_part, shown);
        }
    }
    write_tile<Warps>(Target{key_grad, waiting, part, 0}, of_key, (Real)sight.scale, sight, share, first, width_part);
    write_tile<Warps>(Target{value_grad, waiting, part, 1}, of_value, Real(1), sight, share, first, width_part);
}

// Gradients of a tile of queries.
template <class Warps, u32 WIDTH, u32 KEYS, bool is_held>
__device__ inline void differentiate_queries(const Rows<T>& query_grad, const Known& known, const Sight& sight,
                                             const Share& share) {
    const u32 ROWS = Warps::ROWS, TILE_ROWS = Warps::TILE_ROWS, LINE = Line<WIDTH>::length;
    const u32 COUNT = KEYS / Warps::LANES, SUMS = WIDTH / Warps::PARTS / Warps::LANES;
    DYNAMIC_SHARED(T, query_tile);
    T* grad_tile = query_tile + TILE_ROWS * LINE;
    T* key_tile = grad_tile + TILE_ROWS * LINE;
    T* value_tile = key_tile + KEYS * LINE;
    Real* shown = (Real*)(value_tile + KEYS * LINE);

    u32 first = share.tile * TILE_ROWS, left_over = sight.places - first, key_head = share.head / sight.heads_a_key;
    u32 end = sight.seen(min(first + TILE_ROWS, sight.places) - 1), all_see = sight.seen(first);
    u32 warp_end = sight.seen(first + Warps::warp_row() + Warps::WARP_ROWS - 1);
    u32 width_part = Warps::part() * (WIDTH / Warps::PARTS);
    const T* key_rows = known.key.at(share.batch, key_head, 0);
    const T* value_rows = known.value.at(share.batch, key_head, 0);
    fetch<TILE_ROWS, WIDTH>(query_tile, known.query.at(share.batch, share.head, first), known.query.place, left_over,
                            sight);
    fetch<TILE_ROWS, WIDTH>(grad_tile, known.grad.at(share.batch, share.head, first), known.grad.place, left_over,
                            sight);
    fetch<KEYS, WIDTH>(value_tile, value_rows, known.value.place, end, sight);
    RowNumbers rows[ROWS];
#pragma unroll
    for (u32 i = 0; i < ROWS; i++) {
        u32 place = min(first + Warps::row(i), sight.places - 1);
        rows[i].log_sum = *known.log_sums.at(share.batch, share.head, place);
        rows[i].delta = *known.deltas.at(share.batch, share.head, place);
    }
    Real sums[ROWS][SUMS];
    clear(sums);
    wait_for_copies();
    __syncthreads();
    typename Warps::template Left<WIDTH, is_held> queries(query_tile), grads(grad_tile);
    queries.hold();
    grads.hold();
    for (u32 start = 0; start < end; start += KEYS) {
        wait_for_copies();
        __syncthreads();
        fetch<KEYS, WIDTH>(key_tile, key_rows + start * known.key.place, known.key.place, end - start, sight);
        Real scores[ROWS][COUNT], slopes[ROWS][COUNT];
        bool is_seen = start < warp_end;
        if (is_seen) {
            Warps::template multiply_turned<WIDTH, is_held>(slopes, grads, value_tile);
        }
        wait_for_copies();
        __syncthreads();
        if (end - start > KEYS) {
            u32 next = start + KEYS;
            fetch<KEYS, WIDTH>(value_tile, value_rows + next * known.value.place, known.value.place, end - next, sight);
        }
        if (!is_seen) {
            continue;
        }
        Warps::template multiply_turned<WIDTH, is_held>(scores, queries, key_tile);
        bool is_masked = start + KEYS > all_see;
        Real factor = (Real)(sight.scale * LOG2_E);
#pragma unroll
        for (u32 i = 0; i < ROWS; i++) {
            u32 seen = sight.seen(first + Warps::row(i));
#pragma unroll
            for (u32 j = 0; j < COUNT; j++) {
                bool sees = !is_masked || start + Warps::score_column(j) < seen;
                differentiate(scores[i][j], slopes[i][j], rows[i], factor, sees);
            }
        }
        Warps::template multiply_weights<WIDTH>(sums, slopes, key_tile + width_part, shown);
    }
#pragma unroll
    for (u32 i = 0; i < ROWS; i++) {
        u32 place = first + Warps::row(i);
        if (place < sight.places) {
            write_row<Warps>(query_grad.at(share.batch, share.head, place), sums[i], (Real)sight.scale, sight,
                             width_part);
        }
    }
}

#define ATTENTION_KEY_GRADIENTS(PLAN)                                                                                  \
    KERNEL __launch_bounds__(TEAM_THREADS, PLAN::BLOCKS) void attention_key_gradients(                                 \
        const Rows<T> key_grad, const Rows<T> value_grad, Real* waiting, const Known known, const Sight sight) {       \
        u64 index = sight.first_share + blockIdx.x;                                                                    \
        /* The first tiles are seen by the most queries. */                                                            \
        Share share = share_of(index / sight.parts, sight.batches, sight.heads / sight.heads_a_key);                   \
        differentiate_keys<PLAN::Warps, PLAN::WIDTH, PLAN::COLUMNS>(key_grad, value_grad, waiting, known, sight,       \
                                                                    share, (u32)(index % sight.parts));                \
    }                                                                                                                  \
    EXPORT(attention_key_gradients)

#define ATTENTION_QUERY_GRADIENTS(PLAN)                                                                                \
    KERNEL __launch_bounds__(TEAM_THREADS, PLAN::BLOCKS) void attention_query_gradients(                               \
        const Rows<T> query_grad, const Known known, const Sight sight) {                                              \
        Share share = share_of_queries(sight, PLAN::Warps::TILE_ROWS);                                                 \
        differentiate_queries<PLAN::Warps, PLAN::WIDTH, PLAN::COLUMNS, PLAN::IS_HELD>(query_grad, known, sight,        \
                                                                                      share);                          \
    }                                                                                                                  \
    EXPORT(attention_query_gradients)
