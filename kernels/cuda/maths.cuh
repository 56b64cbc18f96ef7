// Maths: functions that several files of kernels share, in the precision of their argument.
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
