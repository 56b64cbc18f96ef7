// Rows: loops over contiguous elements by some lanes of a warp, by a block or by all threads. T is any floating-point
// type.
#pragma once
#include "block.cuh"
#include "nest.cuh"

// Elements that a thread takes at a time: 16 bytes of them.
const u32 WIDTH = 16 / sizeof(T);
typedef Pack<T, WIDTH> Wide;

// Lanes of a warp that share a row, a power of two of them; the warp's other lanes have the rows that follow.
struct Lanes {
    u32 count;

    __device__ u32 size() const { return count; }
    __device__ u32 place() const { return threadIdx.x & (count - 1); }

    // All lanes of a row get the fold of their values. Every lane of the warp takes part.
    template <class Fold, class R>
    __device__ R fold(R value) const {
        for (u32 distance = count / 2; distance > 0; distance /= 2) {
            value = Fold::of(value, __shfl_xor_sync(ALL_LANES, value, distance));
        }
        return value;
    }

    // Calls `f(row, length)` for this thread's rows. A warp's lanes go round equally often, since they wait for one
    // another: for those that have no row any more, `row` is not below `rows` and the length is 0.
    template <class F>
    __device__ void each_row(u64 rows, u64 width, F f) const {
        u32 at_once = WARP / count;
        u64 own = threadIdx.x % WARP / count;
        u64 step = all_threads() / WARP * at_once;
        for (u64 first = first_element() / WARP * at_once; first < rows; first += step) {
            u64 row = first + own;
            f(row, row < rows ? width : 0);
        }
    }
};

// A block of THREADS that shares a row.
struct Whole {
    __device__ u32 size() const { return THREADS; }
    __device__ u32 place() const { return threadIdx.x; }

    template <class Fold, class R>
    __device__ R fold(R value) const {
        return fold_block<Fold>(value);
    }

    template <class F>
    __device__ void each_row(u64 rows, u64 width, F f) const {
        for (u64 row = blockIdx.x; row < rows; row += gridDim.x) {
            f(row, width);
        }
    }
};

// All threads of all blocks, who share one row and cannot wait for one another.
struct Everyone {
    __device__ u64 size() const { return all_threads(); }
    __device__ u64 place() const { return first_element(); }
};

// Calls `f` with those who share a row: `lanes` of a warp, or the block where that is THREADS.
template <class F>
__device__ inline void by_rows(u32 lanes, F f) {
    if (lanes == THREADS) {
        f(Whole());
    } else {
        f(Lanes{lanes});
    }
}

// Number of elements that a thread takes at a time, as a type.
template <u32 n>
struct Count {
    static constexpr u32 of = n;
};

// As many numbers.
template <u32 n>
struct Reals {
    Real of[n];
};

template <u32 n>
__device__ inline Reals<n> get(const T* row, u64 at, Count<n>) {
    Pack<T, n> pack = *(const Pack<T, n>*)(row + at);
    Reals<n> numbers;
    for (u32 k = 0; k < n; k++) {
        numbers.of[k] = load(pack.element[k]);
    }
    return numbers;
}

// The same, or one number for all where there is no row.
template <u32 n>
__device__ inline Reals<n> get_or(const T* row, Real otherwise, u64 at, Count<n> count) {
    if (row != nullptr) {
        return get(row, at, count);
    }
    Reals<n> numbers;
    for (u32 k = 0; k < n; k++) {
        numbers.of[k] = otherwise;
    }
    return numbers;
}

template <u32 n>
__device__ inline void put(T* row, u64 at, const Reals<n>& numbers) {
    Pack<T, n> pack;
    for (u32 k = 0; k < n; k++) {
        pack.element[k] = store<T>(numbers.of[k]);
    }
    // Counted in packs: of a pack at any element, the compiler would store the elements one by one.
    ((Pack<T, n>*)(row + at % n))[at / n] = pack;
}

__device__ inline u64 bytes_past_a_pack(const void* place) { return (u64)place % sizeof(Wide); }

// Number of elements before the first that begins a pack in each of these rows: all, where the rows do not begin
// alike. Rows that are null are left out.
template <class... Others>
__device__ inline u64 head_of(u64 width, const T* row, const Others*... others) {
    u64 past = bytes_past_a_pack(row);
    bool are_alike = (true && ... && (others == nullptr || bytes_past_a_pack(others) == past));
    u64 head = (sizeof(Wide) - past) % sizeof(Wide) / sizeof(T);
    return are_alike && head < width ? head : width;
}

// Shares the places of a row among `team`: calls `f(place, Count<1>())` for those before `head` and after the last
// whole pack, and `f(place, Count<WIDTH>())` for each pack, with its first place. So each is always the same thread's.
template <class Team, class F>
__device__ inline void walk(const Team& team, u64 width, u64 head, F f) {
    u64 packs = (width - head) / WIDTH, step = team.size();
#pragma unroll 1
    for (u64 at = team.place(); at < head; at += step) {
        f(at, Count<1>());
    }
    // Four at a time, so that a thread waits for several packs at once.
    u64 pack = team.place();
    for (; pack + 3 * step < packs; pack += 4 * step) {
        f(head + pack * WIDTH, Count<WIDTH>());
        f(head + (pack + step) * WIDTH, Count<WIDTH>());
        f(head + (pack + 2 * step) * WIDTH, Count<WIDTH>());
        f(head + (pack + 3 * step) * WIDTH, Count<WIDTH>());
    }
#pragma unroll 1
    for (; pack < packs; pack += step) {
        f(head + pack * WIDTH, Count<WIDTH>());
    }
#pragma unroll 1
    for (u64 at = head + packs * WIDTH + team.place(); at < width; at += step) {
        f(at, Count<1>());
    }
}

// Integer quotient and remainder.
struct Division {
    u64 quotient;
    u64 rest;
};

__device__ inline Division divide(u64 number, u64 by) {
    // Half as many bits take a fraction of the time.
    u64 quotient = (number | by) >> 32 == 0 ? (u32)number / (u32)by : number / by;
    return {quotient, number - quotient * by};
}
