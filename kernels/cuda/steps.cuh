// Steps: the update of one element by each optimizer, from its gradient and state.
#pragma once
#include "number.cuh"

// With g = grad_scale · gradient + weight_decay · p: b ← momentum · b + entering · g, at the first step b ← g;
// p ← p − learning_rate · b.
struct SgdStep {
    f64 learning_rate, momentum, entering, weight_decay, grad_scale;
    // Whether to go along g + momentum · b instead of b, and whether there is no former b.
    u32 is_nesterov, is_first;
};

struct Sgd {
    Real learning_rate, momentum, entering, weight_decay, grad_scale;
    bool is_nesterov, is_first;

    __device__ explicit Sgd(const SgdStep& step)
        : learning_rate((Real)step.learning_rate),
          momentum((Real)step.momentum),
          entering((Real)step.entering),
          weight_decay((Real)step.weight_decay),
          grad_scale((Real)step.grad_scale),
          is_nesterov(step.is_nesterov != 0),
          is_first(step.is_first != 0) {}

    // The gradient with scale and weight decay.
    __device__ Real gradient(Real p, Real g) const { return g * grad_scale + weight_decay * p; }
    // The new direction from the former.
    __device__ Real direction(Real b, Real g) const { return is_first ? g : momentum * b + entering * g; }
    // The way that the parameter goes along a new direction.
    __device__ Real way(Real b, Real g) const { return is_nesterov ? g + momentum * b : b; }
    __device__ Real parameter(Real p, Real way) const { return p - learning_rate * way; }
};

// With g = grad_scale · gradient + weight_decay · p, and p ← keep · p: m ← m + entering · (g − m);
// v ← keep_square · v + entering_square · g²; p ← p − rate · m / (√v · square_scale + epsilon).
struct AdamStep {
    f64 rate, entering, entering_square, keep_square, square_scale, epsilon, weight_decay, keep, grad_scale;
};

struct Adam {
    Real rate, entering, entering_square, keep_square, square_scale, epsilon, weight_decay, keep, grad_scale;

    __device__ explicit Adam(const AdamStep& step)
        : rate((Real)step.rate),
          entering((Real)step.entering),
          entering_square((Real)step.entering_square),
          keep_square((Real)step.keep_square),
          square_scale((Real)step.square_scale),
          epsilon((Real)step.epsilon),
          weight_decay((Real)step.weight_decay),
          keep((Real)step.keep),
          grad_scale((Real)step.grad_scale) {}

    // Changes all three.
    __device__ void move(Real& parameter, Real gradient, Real& mean, Real& square) const {
        Real g = gradient * grad_scale + weight_decay * parameter;
        mean = mean + entering * (g - mean);
        square = keep_square * square + entering_square * g * g;
        Real divisor = sqrt(square) * square_scale + epsilon;
        parameter = keep * parameter - rate * mean / divisor;
    }
};
