// Nest: the loops over several operands of one shape, as the host found them: as few as their strides allow.
#pragma once
#include "number.cuh"

// Division, which is cheap where both numbers fit in 32 bits.
__device__ inline u64 quotient(u64 of, u64 by) { return (of | by) >> 32 ? of / by : (u32)of / (u32)by; }

const u32 MAX_RANK = 8;

// Axes from the outermost to the innermost. Strides are in elements; each operand begins at its own pointer.
template <u32 operands>
struct Nest {
    u32 rank;
    // Whether all offsets and the number of elements fit in 32 bits, where division is cheap.
    u32 is_small;
    u64 lengths[MAX_RANK];
    u64 strides[operands][MAX_RANK];
};

// Where an element of each operand lies.
template <u32 operands>
struct Offsets {
    u64 of[operands];
};

// Of the first `axes` axes alone. The outermost needs no division, because the remainder is the position there.
template <class Index, u32 operands>
__device__ inline Offsets<operands> offsets_in(const Nest<operands>& nest, u32 axes, u64 element) {
    Index at[operands] = {};
    Index rest = (Index)element;
#pragma unroll 1
    for (u32 axis = axes; axis-- > 0;) {
        Index position = rest;
        if (axis > 0) {
            Index length = (Index)nest.lengths[axis];
            Index next = rest / length;
            position = rest - next * length;
            rest = next;
        }
        for (u32 operand = 0; operand < operands; operand++) {
            at[operand] += position * (Index)nest.strides[operand][axis];
        }
    }
    Offsets<operands> offsets;
    for (u32 operand = 0; operand < operands; operand++) {
        offsets.of[operand] = at[operand];
    }
    return offsets;
}

template <u32 operands>
__device__ inline Offsets<operands> offsets_along(const Nest<operands>& nest, u32 axes, u64 element) {
    return nest.is_small ? offsets_in<u32>(nest, axes, element) : offsets_in<u64>(nest, axes, element);
}

// Where element number `element` of the loops lies.
template <u32 operands>
__device__ inline Offsets<operands> offsets_of(const Nest<operands>& nest, u64 element) {
    return offsets_along(nest, nest.rank, element);
}

// This thread's place among all of a row of blocks, and how many there are: for loops that go round until all is done.
__device__ inline u64 first_element() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ inline u64 all_threads() { return (u64)gridDim.x * blockDim.x; }
