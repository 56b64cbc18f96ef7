// Exponents: sums of e to many numbers, without overflow and in one pass over them. T is any fraction.
#pragma once
#include "rows.cuh"

// e to x, in as many digits as are left of it in T.
__device__ inline Real exponent(Real x) {
    if constexpr (sizeof(T) == 2) {
        return exp2(x * Real(1.4426950408889634));
    } else {
        return exp(x);
    }
}

// Below every number.
__device__ inline Real least() { return (Real)-of_bits(0x7f800000u); }

// Of numbers so far: the largest, and the sum of e to each one's distance from it.
struct Exponents {
    Real largest;
    Real sum;

    __device__ static Exponents none() { return {least(), Real(0)}; }

    // What numbers are measured from. Infinite numbers below have no distance from one another; they add nothing.
    __device__ static Real origin(Real largest) { return largest == least() ? Real(0) : largest; }

    __device__ void rise(Real to) {
        if (to != largest) {
            sum *= exponent(largest - to);
            largest = to;
        }
    }

    template <u32 n>
    __device__ void add(const Reals<n>& x) {
        Real most = largest;
        for (u32 k = 0; k < n; k++) {
            most = Largest::of(most, x.of[k]);
        }
        rise(most);
        Real from = origin(most);
        for (u32 k = 0; k < n; k++) {
            sum += exponent(x.of[k] - from);
        }
    }

    __device__ void join(Exponents other) {
        Real most = Largest::of(largest, other.largest);
        rise(most);
        other.rise(most);
        sum += other.sum;
    }

    // The sum, which is no number where the largest is infinite.
    __device__ Real total() const { return sum + (largest - largest); }

    __device__ Real log_sum() const { return largest + log(total()); }
};

// Those of a row, for all of `team`.
template <class Team>
__device__ inline Exponents exponents_of(const Team& team, const T* row, u64 length) {
    Exponents own = Exponents::none();
    walk(team, length, head_of(length, row), [&](u64 at, auto count) { own.add(get(row, at, count)); });
    Real largest = team.template fold<Largest>(own.largest);
    own.rise(largest);
    own.sum = team.template fold<Sum>(own.sum);
    return own;
}
