// Split numbers: single precision on tensor cores, which read only the first 11 bits of each factor.
//
// A number is the sum of a big part, which has these bits, and a small one. Of a product, small · small is left out,
// a few 2⁻²³ of it at most; the other three are added up as in Ootomo, Yokota: "Recovering single precision accuracy
// from tensor cores while surpassing the FP32 theoretical peak performance", 2022, and `OpMultiplyAddFastF32` of
// NVIDIA's CUTLASS. Tensor cores cut sums off where others round (tensor_cores.cuh), so that long ones would become too
// small: small products have sums of their own, the rests, and sums of many tiles are added by threads.
#pragma once
#include "tensor_cores.cuh"

const f32 LARGEST = 3.40282347e38f;

// The small part is a little more than what is left, since tensor cores cut it off, too: they take 2⁻²³ of the number
// from it on average.
__device__ inline void split(f32 number, f32& big, f32& small) {
    big = of_bits(bits_of(number) & 0xffffe000u);
    small = fmaf(number, 1.00000012f, -big);
}

struct SplitLeft {
    Left8 big;
    Left8 small;

    SplitLeft() = default;
    // Numbers in the order of `Left8`.
    __device__ SplitLeft(f32 first, f32 second, f32 third, f32 fourth) {
        split(first, big.number[0], small.number[0]);
        split(second, big.number[1], small.number[1]);
        split(third, big.number[2], small.number[2]);
        split(fourth, big.number[3], small.number[3]);
    }
};

struct SplitRight {
    Right8 big;
    Right8 small;

    __device__ SplitRight(f32 first, f32 second) {
        split(first, big.number[0], small.number[0]);
        split(second, big.number[1], small.number[1]);
    }
};

// A rest as it is to be added. Where a factor is infinite its small part is no number, and so is the rest: then the
// big products alone tell what the sum is, and are not finite themselves.
__device__ inline f32 checked_rest(f32 rest) { return fminf(rest, LARGEST); }
