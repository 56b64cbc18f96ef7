// Attention's plans: tile sizes by the bytes of an element and the padded head size.
//
// The engine knows them as well, in `backend/cuda/attention_tiles.rs`. They are as large as registers allow: no plan
// has numbers that would have to be moved to memory and back.
#pragma once
#include "attention_backward.cuh"
#include "attention_forward.cuh"

// Who multiplies; columns of a tile; whether blocks hold the queries that they have in registers; and how many blocks
// share a processor, as far as registers decide.
template <class Team, u32 PADDED_WIDTH, u32 TILE_COLUMNS, bool ARE_ROWS_HELD, u32 RESIDENT_BLOCKS>
struct Plan {
    typedef Team Warps;
    static const u32 WIDTH = PADDED_WIDTH;
    static const u32 COLUMNS = TILE_COLUMNS;
    static const bool IS_HELD = ARE_ROWS_HELD;
    static const u32 BLOCKS = RESIDENT_BLOCKS;
};

// Tiles of as few rows as serve the width; large ones: fewer reads for each product, but fewer blocks; or lean ones,
// for GPUs whose blocks have 99 KiB of shared memory.
enum Size { SMALL, LARGE, LEAN };

template <u32 BYTES, u32 WIDTH, Size size>
struct Plans;

// Height of a warp's part of a tile: the higher, the more products for each number read.
template <u32 HEIGHT>
using Tensors = ByTensorCores<T, HEIGHT, 1>;
template <u32 HEIGHT>
using Splits = BySplitNumbers<HEIGHT, 1>;

// 16-bit numbers.
template <>
struct Plans<2, 32, SMALL> {
    typedef Plan<Tensors<1>, 32, 64, true, 4> Forward;
    typedef Plan<Tensors<1>, 32, 64, false, 3> KeyGradients;
    typedef Plan<Tensors<1>, 32, 64, true, 3> QueryGradients;
};
template <>
struct Plans<2, 64, SMALL> {
    typedef Plan<Tensors<1>, 64, 64, true, 3> Forward;
    typedef Plan<Tensors<1>, 64, 32, false, 3> KeyGradients;
    typedef Plan<Tensors<1>, 64, 64, true, 3> QueryGradients;
};
template <>
struct Plans<2, 64, LARGE> {
    typedef Plan<Tensors<2>, 64, 64, true, 2> Forward;
    typedef Plan<Tensors<2>, 64, 32, false, 2> KeyGradients;
    typedef Plan<Tensors<2>, 64, 32, true, 2> QueryGradients;
};
template <>
struct Plans<2, 96, SMALL> {
    typedef Plan<Tensors<1>, 96, 64, true, 3> Forward;
    typedef Plan<Tensors<1>, 96, 32, false, 2> KeyGradients;
    typedef Plan<Tensors<1>, 96, 32, true, 3> QueryGradients;
};
template <>
struct Plans<2, 128, SMALL> {
    typedef Plan<Tensors<1>, 128, 64, false, 3> Forward;
    typedef Plan<Tensors<1>, 128, 64, false, 2> KeyGradients;
    typedef Plan<Tensors<1>, 128, 64, false, 3> QueryGradients;
};
// Two gradients of higher tiles would not fit in registers: those of keys and values have small tiles only.
template <>
struct Plans<2, 128, LARGE> {
    typedef Plan<Tensors<2>, 128, 64, false, 2> Forward;
    typedef Plan<Tensors<2>, 128, 32, false, 2> QueryGradients;
};
template <>
struct Plans<2, 256, SMALL> {
    typedef Plan<Tensors<1>, 256, 32, false, 2> Forward;
    typedef Plan<ByTensorCores<T, 1, 2>, 256, 32, false, 2> KeyGradients;
    typedef Plan<Tensors<1>, 256, 32, false, 2> QueryGradients;
};

// Single precision.
template <>
struct Plans<4, 32, SMALL> {
    typedef Plan<Splits<1>, 32, 64, false, 3> Forward;
    typedef Plan<Splits<1>, 32, 32, false, 4> KeyGradients;
    typedef Plan<Splits<1>, 32, 32, false, 4> QueryGradients;
};
template <>
struct Plans<4, 64, SMALL> {
    typedef Plan<Splits<1>, 64, 64, false, 3> Forward;
    typedef Plan<Splits<1>, 64, 32, false, 3> KeyGradients;
    typedef Plan<Splits<1>, 64, 32, false, 3> QueryGradients;
};
// Two gradients of higher tiles would not fit in registers.
template <>
struct Plans<4, 64, LARGE> {
    typedef Plan<Splits<2>, 64, 32, false, 2> Forward;
    typedef Plans<4, 64, SMALL>::KeyGradients KeyGradients;
    typedef Plan<Splits<2>, 64, 32, false, 2> QueryGradients;
};
template <>
struct Plans<4, 96, SMALL> {
    typedef Plan<Splits<1>, 96, 32, false, 3> Forward;
    typedef Plan<Splits<1>, 96, 32, false, 2> KeyGradients;
    typedef Plan<Splits<1>, 96, 32, false, 2> QueryGradients;
};
template <>
struct Plans<4, 128, SMALL> {
    typedef Plan<Splits<1>, 128, 32, false, 2> Forward;
    typedef Plan<Splits<1>, 128, 32, false, 2> KeyGradients;
    typedef Plan<Splits<1>, 128, 32, false, 2> QueryGradients;
};
// The others fit as they are.
template <>
struct Plans<4, 128, LEAN> {
    typedef Plan<Splits<1>, 128, 16, false, 2> KeyGradients;
};
template <>
struct Plans<4, 256, SMALL> {
    typedef Plan<BySplitNumbers<1, 2>, 256, 32, false, 2> Forward;
    typedef Plan<BySplitNumbers<1, 2>, 256, 16, false, 2> KeyGradients;
    typedef Plan<BySplitNumbers<1, 2>, 256, 16, false, 2> QueryGradients;
};

// Double precision.
template <u32 PADDED_WIDTH>
struct Plans<8, PADDED_WIDTH, SMALL> {
    typedef Plan<ByThreads, PADDED_WIDTH, 16, false, 1> Forward;
    typedef Plan<ByThreads, PADDED_WIDTH, 16, false, 1> KeyGradients;
    typedef Plan<ByThreads, PADDED_WIDTH, 16, false, 1> QueryGradients;
};
