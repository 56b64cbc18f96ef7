// Exponents: sums of exponentials, without overflow and in one pass. T is any floating-point type.
#pragma once
#include "rows.cuh"

// e to x, in as many digits as are left of it in T.
__device__ inline Real exponent(Real x) {
    if constexpr (sizeof(T) == 2) {
        // Real is f32 here; for doubles, this is compiled and never run.
        f32 scaled = (f32)x * 1.4426950408889634f;
#ifdef CUDA_ON_CPU
        return exp2(scaled);
#else
        f32 y;
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(scaled));
        return y;
#endif
    } else {
        return exp(x);
    }
}

// Below every number.
__device__ inline Real least() { return (Real)-of_bits(0x7f800000u); }

// Of numbers so far: the largest, and the sum of e to each one's distance from it. NaN makes the sum NaN.
struct Exponents {
    Real largest;
    Real sum;

    __device__ static Exponents none() { return {least(), Real(0)}; }

    // Measures from a number that is not smaller than the largest. Infinite numbers below have no distance from one another;
    // from 0 on they add nothing, as they should. Without branches, so that a thread can go on to the next numbers.
    __device__ Real rise(Real to) {
        Real origin = to == least() ? Real(0) : to;
        sum *= exponent(largest - origin);
        largest = to;
        return origin;
    }

    template <u32 n>
    __device__ void add(const Reals<n>& x) {
        Real most = largest;
        for (u32 k = 0; k < n; k++) {
            most = max(most, x.of[k]);
        }
        Real origin = rise(most);
        for (u32 k = 0; k < n; k++) {
            sum += exponent(x.of[k] - origin);
        }
    }

    __device__ void join(Exponents other) {
        Real most = max(largest, other.largest);
        rise(most);
        other.rise(most);
        sum += other.sum;
    }

    // The sum, which is NaN where the largest is infinite.
    __device__ Real total() const { return sum + (largest - largest); }

    __device__ Real log_sum() const { return largest + log(total()); }
};

// Those of a row, for all of `team`.
template <class Team>
__device__ inline Exponents exponents_of(const Team& team, const T* row, u64 length) {
    Exponents own = Exponents::none();
    walk(team, length, head_of(length, row), [&](u64 at, auto count) { own.add(get(row, at, count)); });
    own.rise(team.template fold<Largest>(own.largest));
    own.sum = team.template fold<Sum>(own.sum);
    return own;
}
