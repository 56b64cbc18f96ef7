// Many: one operation on many tensors in one launch. Each tensor's elements lie one after another; they are cut in
// chunks, of which each block takes one.
#pragma once
#include "lines.cuh"

const u32 CHUNK = 8192;

// How many tensors of so many operands are told of in so many bytes of arguments: for each its operands' addresses, how
// many elements it has, and the end of its chunks.
__device__ constexpr u32 tensors_in(u32 bytes, u32 operands) { return bytes / (operands * 8 + 12) / 2 * 2; }

template <u32 operands, u32 most>
struct Many {
    u64 addresses[operands][most];
    u64 elements[most];
    // Number of chunks up to the end of each tensor. Behind the last, more than there are.
    u32 ends[most];
};

// A block's part of its tensor.
template <u32 operands>
struct Chunk {
    u64 addresses[operands];
    // Number of the chunk's first element, and how many it has.
    u64 first, length;

    template <class N>
    __device__ N* at(u32 operand) const {
        return (N*)addresses[operand] + first;
    }

    // Whether elements of N of this operand can be moved in packs of `width`.
    template <class N, u32 width>
    __device__ bool is_aligned(u32 operand) const {
        return addresses[operand] % sizeof(Pack<N, width>) == 0;
    }
};

template <u32 operands, u32 most>
__device__ inline Chunk<operands> chunk_of_block(const Many<operands, most>& many) {
    u32 tensor = 0, above = most - 1;
    while (tensor < above) {
        u32 middle = (tensor + above) / 2;
        if (many.ends[middle] > blockIdx.x) {
            above = middle;
        } else {
            tensor = middle + 1;
        }
    }
    u32 before = tensor == 0 ? 0 : many.ends[tensor - 1];
    Chunk<operands> chunk;
    for (u32 operand = 0; operand < operands; operand++) {
        chunk.addresses[operand] = many.addresses[operand][tensor];
    }
    chunk.first = (u64)(blockIdx.x - before) * CHUNK;
    u64 rest = many.elements[tensor] - chunk.first;
    chunk.length = rest < CHUNK ? rest : CHUNK;
    return chunk;
}

// The part of a chunk that this thread computes.
template <u32 operands>
__device__ inline Share share_of_chunk(const Chunk<operands>& chunk, bool is_packed) {
    return Share{threadIdx.x, blockDim.x, chunk.length, is_packed};
}
