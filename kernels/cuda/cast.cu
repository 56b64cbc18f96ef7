// Cast: converts elements from one type to another. T is the type that is read, any; each kernel writes one.
//
// A number goes by way of one that holds it exactly, or if it is a whole number, by way of double precision; from there
// it is cut off or rounded once more, as the host does it.
#include "lines.cuh"

__device__ inline f64 wide(f64 x) { return x; }
__device__ inline f64 wide(i64 x) { return (f64)x; }
__device__ inline f32 wide(f32 x) { return x; }
__device__ inline f32 wide(bf16 x) { return load(x); }
__device__ inline f32 wide(f16 x) { return load(x); }
__device__ inline f32 wide(u8 x) { return load(x); }
__device__ inline f32 wide(truth x) { return load(x); }

template <class O>
struct Narrow {
    template <class W>
    __device__ static O of(W x) {
        return store<O>((f32)x);
    }
};
template <>
struct Narrow<f64> {
    template <class W>
    __device__ static f64 of(W x) {
        return (f64)x;
    }
};
// Beyond the ends of a type, numbers become its ends; NaN becomes 0.
template <>
struct Narrow<i64> {
    template <class W>
    __device__ static i64 of(W x) {
        const W end = (W)9223372036854775808.0;
        if (x != x) {
            return 0;
        }
        if (x >= end) {
            return 9223372036854775807ll;
        }
        return x <= -end ? -9223372036854775807ll - 1 : (i64)x;
    }
};
template <>
struct Narrow<u8> {
    template <class W>
    __device__ static u8 of(W x) {
        return x > W(0) ? (x < W(255) ? (u8)x : 255) : 0;
    }
};
template <>
struct Narrow<truth> {
    template <class W>
    __device__ static truth of(W x) {
        truth y;
        y.byte = x != W(0);
        return y;
    }
};

template <class O>
__device__ inline void cast(O* out, const T* in, const Lines<2>& lines) {
    const u32 width = 16 / (sizeof(T) > sizeof(O) ? sizeof(T) : sizeof(O));
    Share share = share_of_line(lines);
    each_line(lines, [&](const Offsets<2>& at) {
        write_line<width>(
            share, line_of(out, lines, at, 0), [](T x) { return Narrow<O>::of(wide(x)); }, line_of(in, lines, at, 1));
    });
}

#define CAST(O)                                                                                        \
    KERNEL void cast_##O(O* out, const T* in, const Lines<2> lines) { cast(out, in, lines); }          \
    EXPORT_PLAIN(cast_##O)

CAST(f64)
CAST(f32)
CAST(bf16)
CAST(f16)
CAST(i64)
CAST(u8)
CAST(truth)
