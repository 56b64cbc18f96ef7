// Compare: bool results of comparing two elements, or an element and a scalar. T is any type.
#include "lines.cuh"

const u32 WIDTH = 16 / sizeof(T);

// The possible relations of two numbers; a comparison names those for which it holds.
const u32 LESS = 1, EQUAL = 2, GREATER = 4, UNORDERED = 8;

template <class N>
__device__ inline truth holds(u32 wanted, N l, N r) {
    u32 relation = l < r ? LESS : l == r ? EQUAL : l > r ? GREATER : UNORDERED;
    truth y;
    y.byte = (wanted & relation) != 0;
    return y;
}

// The type in which a given number is compared: floating-point types in their `Real`, all others in double precision.
template <class N>
struct Beside {
    typedef f64 type;
};
template <>
struct Beside<f32> {
    typedef f32 type;
};
template <>
struct Beside<bf16> {
    typedef f32 type;
};
template <>
struct Beside<f16> {
    typedef f32 type;
};

KERNEL void compare(truth* out, const T* left, const T* right, const Lines<3> lines, u32 wanted) {
    Share share = share_of_line(lines);
    each_line(lines, [&](const Offsets<3>& at) {
        write_line<WIDTH>(
            share, line_of(out, lines, at, 0), [=](T l, T r) { return holds(wanted, load(l), load(r)); },
            line_of(left, lines, at, 1), line_of(right, lines, at, 2));
    });
}
EXPORT_PLAIN(compare)

KERNEL void compare_number(truth* out, const T* in, const Lines<2> lines, u32 wanted, f64 number) {
    typedef Beside<T>::type Number;
    Share share = share_of_line(lines);
    Number given = (Number)number;
    each_line(lines, [&](const Offsets<2>& at) {
        write_line<WIDTH>(
            share, line_of(out, lines, at, 0), [=](T x) { return holds(wanted, (Number)load(x), given); },
            line_of(in, lines, at, 1));
    });
}
EXPORT_PLAIN(compare_number)
