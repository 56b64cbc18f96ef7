// Split numbers: single precision on tensor cores, which read only the first 11 bits of each factor.
//
// A number is the sum of a big part, which has these bits, and a small one. Of a product, small · small is left out;
// the other three are added up as in Ootomo, Yokota: "Recovering single precision accuracy from tensor cores while
// surpassing the FP32 theoretical peak performance", 2022, and `OpMultiplyAddFastF32` of NVIDIA's CUTLASS. Tensor cores
// cut sums off where others round (tensor_cores.cuh), so that long ones would become too small: products with a small
// part have their own sums, the rests, and threads add the sums over a few matrices.
#pragma once
#include "tensor_cores.cuh"

const f32 LARGEST = 3.40282347e38f;

// The parts of each number that a lane has of a matrix.
template <class Matrix>
__device__ inline void split(const Matrix& whole, Matrix& big, Matrix& small) {
#pragma unroll
    for (u32 i = 0; i < sizeof(whole.number) / sizeof(f32); i++) {
        big.number[i] = of_bits(bits_of(whole.number[i]) & 0xffffe000u);
        small.number[i] = whole.number[i] - big.number[i];
    }
}

// HEIGHT left matrices, one above the other.
template <u32 HEIGHT>
struct SplitLeft {
    Left8 big[HEIGHT];
    Left8 small[HEIGHT];
};

struct SplitRight {
    Right8 big;
    Right8 small;

    __device__ explicit SplitRight(const Right8& whole) { split(whole, big, small); }
};

// A rest as it is to be added. Where a factor is infinite its small part is NaN, and so is the rest: then the
// big products alone determine the sum, and are not finite themselves.
__device__ inline f32 checked_rest(f32 rest) { return fminf(rest, LARGEST); }

// The average excess of a sum over the three products: small · small is 1.04 · 2⁻²³ of it, and what
// is cut off of the two small parts 0.63 · 2⁻²³ each, if a number's digits are equally frequent. What tensor cores cut
// off as they sum is not made good: how much that is differs from one GPU to the next.
const f32 GROWTH = (f32)(1 + (1.04 + 2 * 0.63) / 8388608);
