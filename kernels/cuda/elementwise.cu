// Elementwise: one output element from the input elements at the same index, in any layout. T is any floating-point
// type.
#include "functions.cuh"
#include "lines.cuh"

// Elements that a thread takes at a time: 16 bytes of them.
const u32 WIDTH = 16 / sizeof(T);

#define UNARY(NAME)                                                                                             \
    KERNEL void unary_##NAME(T* out, const T* in, const Lines<2> lines, f64 a, f64 b) {                         \
        Share share = share_of_line(lines);                                                                     \
        Unary_##NAME function{(Real)a, (Real)b};                                                                \
        each_line(lines, [&](const Offsets<2>& at) {                                                            \
            write_line<WIDTH>(share, line_of(out, lines, at, 0), function, line_of(in, lines, at, 1));          \
        });                                                                                                     \
    }                                                                                                           \
    EXPORT_PLAIN(unary_##NAME)

#define BINARY(NAME)                                                                                            \
    KERNEL void binary_##NAME(T* out, const T* left, const T* right, const Lines<3> lines, f64 a) {             \
        Share share = share_of_line(lines);                                                                     \
        Binary_##NAME function{(Real)a};                                                                        \
        each_line(lines, [&](const Offsets<3>& at) {                                                            \
            write_line<WIDTH>(share, line_of(out, lines, at, 0), function, line_of(left, lines, at, 1),         \
                              line_of(right, lines, at, 2));                                                    \
        });                                                                                                     \
    }                                                                                                           \
    EXPORT_PLAIN(binary_##NAME)

#define TERNARY(NAME)                                                                                           \
    KERNEL void ternary_##NAME(T* out, const T* left, const T* right, const Lines<3> lines, f64 a, f64 b) {     \
        Share share = share_of_line(lines);                                                                     \
        Ternary_##NAME function{(Real)a, (Real)b};                                                              \
        each_line(lines, [&](const Offsets<3>& at) {                                                            \
            Line<T> written = line_of(out, lines, at, 0);                                                       \
            write_line<WIDTH>(share, written, function, written, line_of(left, lines, at, 1),                   \
                              line_of(right, lines, at, 2));                                                    \
        });                                                                                                     \
    }                                                                                                           \
    EXPORT_PLAIN(ternary_##NAME)

UNARY(affine)
UNARY(exp)
UNARY(log)
UNARY(sqrt)
UNARY(affine_sqrt)
UNARY(square)
UNARY(tanh)
UNARY(sin)
UNARY(cos)
UNARY(sigmoid)
UNARY(silu)
UNARY(relu)
UNARY(gelu)
UNARY(gelu_tanh)

BINARY(add)
BINARY(sub)
BINARY(mul)
BINARY(div)
BINARY(add_scaled)
BINARY(lerp)
BINARY(neg_mul)
BINARY(square_grad)
BINARY(sqrt_grad)
BINARY(tanh_grad)
BINARY(sin_grad)
BINARY(cos_grad)
BINARY(sigmoid_grad)
BINARY(silu_grad)
BINARY(relu_grad)
BINARY(gelu_grad)
BINARY(gelu_tanh_grad)

TERNARY(add_mul)
TERNARY(add_div)
