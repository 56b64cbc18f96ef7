// Number: the element types, and their conversion to and from the types that kernels compute in.
//
// Kernels are compiled for one type T, or two, T and U. Nothing is included from the toolkit, so that kernels compile
// wherever the compiler alone is. `CUDA_ON_CPU` is defined where this text runs on the host, in tests.
#pragma once

// The declaration of a kernel: with a name that the host can look up. `EXPORT` follows each kernel, or `EXPORT_PLAIN`
// where its threads never wait for one another; on a GPU, neither does anything.
#ifndef CUDA_ON_CPU
#define KERNEL extern "C" __global__
#define EXPORT(name)
#define EXPORT_PLAIN(name)
// Shared memory that a launch asks for, as an array of `type`. There is one such piece, whatever its name.
#define DYNAMIC_SHARED(type, name)                                      \
    extern __shared__ __align__(16) unsigned char dynamic_shared_memory[]; \
    type* name = (type*)dynamic_shared_memory
#endif

typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
typedef int i32;
typedef unsigned char u8;
typedef float f32;
typedef double f64;

struct bf16 {
    unsigned short bits;
};
struct f16 {
    unsigned short bits;
};
// A byte that is 0 for false and anything else for true.
struct truth {
    u8 byte;
};

// The type in which elements are computed, and sums and statistics are kept: single precision, or double for doubles.
template <class N>
struct Computed {
    typedef f32 type;
};
template <>
struct Computed<f64> {
    typedef f64 type;
};
template <>
struct Computed<i64> {
    typedef i64 type;
};
typedef Computed<T>::type Real;

__device__ inline u32 bits_of(f32 x) { return __float_as_uint(x); }
__device__ inline f32 of_bits(u32 bits) { return __uint_as_float(bits); }

// Element to number.
__device__ inline f64 load(f64 x) { return x; }
__device__ inline f32 load(f32 x) { return x; }
__device__ inline f32 load(bf16 x) { return of_bits((u32)x.bits << 16); }
__device__ inline i64 load(i64 x) { return x; }
__device__ inline f32 load(u8 x) { return (f32)x; }
__device__ inline f32 load(truth x) { return x.byte != 0 ? 1.0f : 0.0f; }
__device__ inline f32 load(f16 x) {
#ifdef CUDA_ON_CPU
    return cpu::of_half(x.bits);
#else
    f32 y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
#endif
}

// Number to element, to the nearest, halfway to even.
template <class N>
struct Store;
template <>
struct Store<f64> {
    __device__ static f64 of(f64 x) { return x; }
};
template <>
struct Store<f32> {
    __device__ static f32 of(f64 x) { return (f32)x; }
    __device__ static f32 of(f32 x) { return x; }
};
template <>
struct Store<bf16> {
    __device__ static bf16 of(f32 x) {
        bf16 y;
#ifdef CUDA_ON_CPU
        u32 bits = bits_of(x);
        bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
        y.bits = (unsigned short)(is_nan ? (bits >> 16) | 0x40u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
#else
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
#endif
        return y;
    }
};
template <>
struct Store<f16> {
    __device__ static f16 of(f32 x) {
        f16 y;
#ifdef CUDA_ON_CPU
        y.bits = cpu::to_half(x);
#else
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
#endif
        return y;
    }
};
template <>
struct Store<i64> {
    __device__ static i64 of(i64 x) { return x; }
};
template <>
struct Store<u8> {
    __device__ static u8 of(f32 x) { return (u8)x; }
};
template <>
struct Store<truth> {
    __device__ static truth of(f32 x) {
        truth y;
        y.byte = x != 0.0f;
        return y;
    }
};

// The element of type N nearest to x.
template <class N, class X>
__device__ inline N store(X x) {
    return Store<N>::of(x);
}

// `count` elements that lie one after another, moved at once.
template <class N, u32 count>
struct alignas(sizeof(N) * count) Pack {
    N element[count];
};
