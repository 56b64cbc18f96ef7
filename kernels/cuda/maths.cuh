// Maths: functions shared by several kernels, in the precision of their argument.
#pragma once
#include "number.cuh"

template <class R>
__device__ inline R sigmoid(R x) {
    return R(1) / (R(1) + exp(-x));
}

// The share of a normal distribution below x.
template <class R>
__device__ inline R normal_share(R x) {
    return R(0.5) * (R(1) + erf(x * R(0.70710678118654752440)));
}

// Both at once, for the price of little more than one.
__device__ inline void sine_and_cosine(f32 angle, f32* sine, f32* cosine) { sincosf(angle, sine, cosine); }
__device__ inline void sine_and_cosine(f64 angle, f64* sine, f64* cosine) { sincos(angle, sine, cosine); }
