// Scalar functions of the elementwise kernels. Computed in `Real`, stored as `T`.
#pragma once
#include "maths.cuh"

// `a` and `b` are the function's own numbers, which few have.
#define UNARY(NAME, VALUE)                                                                    \
    struct Unary_##NAME {                                                                     \
        Real a, b;                                                                            \
        __device__ Real value(Real x) const { return VALUE; }                                 \
        __device__ T operator()(T x) const { return store<T>(value(load(x))); }               \
    };
#define BINARY(NAME, VALUE)                                                                   \
    struct Binary_##NAME {                                                                    \
        Real a;                                                                               \
        __device__ Real value(Real l, Real r) const { return VALUE; }                         \
        __device__ T operator()(T l, T r) const { return store<T>(value(load(l), load(r))); } \
    };
#define TERNARY(NAME, VALUE)                                                                  \
    struct Ternary_##NAME {                                                                   \
        Real a, b;                                                                            \
        __device__ Real value(Real o, Real l, Real r) const { return VALUE; }                 \
        __device__ T operator()(T o, T l, T r) const {                                        \
            return store<T>(value(load(o), load(l), load(r)));                                \
        }                                                                                     \
    };

__device__ inline Real gelu_inner(Real x) { return Real(0.7978845608028654) * (x + Real(0.044715) * x * x * x); }

__device__ inline Real gelu_grad(Real g, Real x) {
    Real density = exp(-(x * x) / Real(2)) * Real(0.3989422804014327);
    return g * (normal_share(x) + x * density);
}

__device__ inline Real gelu_tanh_grad(Real g, Real x) {
    Real t = tanh(gelu_inner(x));
    Real slope = Real(0.7978845608028654) * (Real(1) + Real(3 * 0.044715) * x * x);
    return g * (Real(1) + t + x * (Real(1) - t * t) * slope) / Real(2);
}

__device__ inline Real silu_grad(Real g, Real x) {
    Real s = sigmoid(x);
    return g * s * (Real(1) + x * (Real(1) - s));
}

UNARY(affine, a * x + b)
UNARY(exp, exp(x))
UNARY(log, log(x))
UNARY(sqrt, sqrt(x))
UNARY(affine_sqrt, a * sqrt(x) + b)
UNARY(square, x * x)
UNARY(tanh, tanh(x))
UNARY(sin, sin(x))
UNARY(cos, cos(x))
UNARY(sigmoid, sigmoid(x))
UNARY(silu, x * sigmoid(x))
UNARY(relu, x <= Real(0) ? Real(0) : x)
UNARY(gelu, x * normal_share(x))
UNARY(gelu_tanh, x * Real(0.5) * (Real(1) + tanh(gelu_inner(x))))

BINARY(add, l + r)
BINARY(sub, l - r)
BINARY(mul, l * r)
BINARY(div, l / r)
BINARY(add_scaled, l + a * r)
BINARY(lerp, l + a * (r - l))
BINARY(neg_mul, -(l * r))
BINARY(square_grad, Real(2) * l * r)
BINARY(sqrt_grad, l / (Real(2) * r))
BINARY(tanh_grad, l * (Real(1) - r * r))
BINARY(sin_grad, l * cos(r))
BINARY(cos_grad, -(l * sin(r)))
BINARY(sigmoid_grad, l * r * (Real(1) - r))
BINARY(silu_grad, silu_grad(l, r))
BINARY(relu_grad, r <= Real(0) ? Real(0) : l)
BINARY(gelu_grad, gelu_grad(l, r))
BINARY(gelu_tanh_grad, gelu_tanh_grad(l, r))

TERNARY(add_mul, b * o + a * l * r)
TERNARY(add_div, o + a * l / r)

#undef UNARY
#undef BINARY
#undef TERNARY
