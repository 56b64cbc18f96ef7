// Power: elements raised to a scalar exponent. T is any floating-point type.
#include "lines.cuh"

const u32 WIDTH = 16 / sizeof(T);

// Roots are computed as such: the root of −∞ is NaN, its power with ½ would be ∞. All threads have one exponent.
__device__ inline Real raised(Real x, Real exponent) {
    if (exponent == Real(2)) {
        return x * x;
    }
    if (exponent == Real(1)) {
        return x;
    }
    if (exponent == Real(3)) {
        return x * x * x;
    }
    if (exponent == Real(0.5)) {
        return sqrt(x);
    }
    if (exponent == Real(-0.5)) {
        return Real(1) / sqrt(x);
    }
    if (exponent == Real(-1)) {
        return Real(1) / x;
    }
    return pow(x, exponent);
}

KERNEL void power(T* out, const T* in, const Lines<2> lines, f64 exponent) {
    Share share = share_of_line(lines);
    Real power = (Real)exponent;
    each_line(lines, [&](const Offsets<2>& at) {
        write_line<WIDTH>(
            share, line_of(out, lines, at, 0), [=](T x) { return store<T>(raised(load(x), power)); },
            line_of(in, lines, at, 1));
    });
}
EXPORT_PLAIN(power)

// `less`: the exponent less 1, which is rounded once only.
KERNEL void power_backward(T* out, const T* grad, const T* in, const Lines<3> lines, f64 exponent, f64 less) {
    Share share = share_of_line(lines);
    Real factor = (Real)exponent, power = (Real)less;
    each_line(lines, [&](const Offsets<3>& at) {
        write_line<WIDTH>(
            share, line_of(out, lines, at, 0),
            [=](T g, T x) {
                // A constant has no slope, not even where its formula would divide by 0.
                Real slope = factor == Real(0) ? factor : factor * raised(load(x), power);
                return store<T>(load(g) * slope);
            },
            line_of(grad, lines, at, 1), line_of(in, lines, at, 2));
    });
}
EXPORT_PLAIN(power_backward)
