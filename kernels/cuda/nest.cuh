// Nest: the loops over several operands of one shape, as the host found them: as few as their strides allow.
#pragma once
#include "number.cuh"

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

template <class Index, u32 operands>
__device__ inline Offsets<operands> offsets_in(const Nest<operands>& nest, u64 element) {
    Index at[operands] = {};
    Index rest = (Index)element;
    for (u32 axis = nest.rank; axis-- > 0;) {
        // What is left for the outermost axis is the position there: a division less, the only one of a single loop.
        Index length = (Index)nest.lengths[axis];
        Index next = axis > 0 ? rest / length : 0;
        Index position = rest - next * length;
        rest = next;
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

// Where element number `element` of the loops lies.
template <u32 operands>
__device__ inline Offsets<operands> offsets_of(const Nest<operands>& nest, u64 element) {
    return nest.is_small ? offsets_in<u32>(nest, element) : offsets_in<u64>(nest, element);
}

// This thread's place among all of a row of blocks, and how many there are: for loops that go round until all is done.
__device__ inline u64 first_element() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ inline u64 all_threads() { return (u64)gridDim.x * blockDim.x; }
