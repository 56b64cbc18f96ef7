// Where: one of two elements, by the bool at the same index. T stands for all types of its size.
#include "lines.cuh"

const u32 WIDTH = 16 / sizeof(T);

KERNEL void where_cond(T* out, const truth* condition, const T* left, const T* right, const Lines<4> lines) {
    Share share = share_of_line(lines);
    each_line(lines, [&](const Offsets<4>& at) {
        write_line<WIDTH>(
            share, line_of(out, lines, at, 0), [](truth is, T l, T r) { return is.byte != 0 ? l : r; },
            line_of(condition, lines, at, 1), line_of(left, lines, at, 2), line_of(right, lines, at, 3));
    });
}
EXPORT_PLAIN(where_cond)

// Keeps elements where the condition is `wanted`; the others become 0.
KERNEL void keep(T* out, const truth* condition, const T* in, const Lines<3> lines, u32 wanted) {
    Share share = share_of_line(lines);
    bool kept = wanted != 0;
    each_line(lines, [&](const Offsets<3>& at) {
        write_line<WIDTH>(
            share, line_of(out, lines, at, 0), [=](truth is, T x) { return (is.byte != 0) == kept ? x : T{}; },
            line_of(condition, lines, at, 1), line_of(in, lines, at, 2));
    });
}
EXPORT_PLAIN(keep)
