// Lines: loops over several operands of one shape, a line at a time. A line is the innermost loop: within it, an
// element's place is found without a division, and where memory allows, elements are moved in packs.
//
// A block's threads lie along x within a line, along y over lines.
#pragma once
#include "nest.cuh"

template <u32 operands>
struct Lines {
    Nest<operands> nest;
    // Number of lines.
    u64 count;
    // Whether lines are moved in packs: the written elements lie one after another, and those of each operand that is
    // read do so or are one and the same; all lines begin at a multiple of a pack's bytes.
    u64 is_packed;
};

template <class N>
struct Plain {
    typedef N type;
};
template <class N>
struct Plain<const N> {
    typedef N type;
};

// One operand of a line, of elements N or const N.
template <class N>
struct Line {
    N* first;
    u64 stride;

    __device__ N& at(u64 place) const { return first[place * stride]; }

    template <u32 width>
    __device__ Pack<typename Plain<N>::type, width> pack(u64 place) const {
        typedef Pack<typename Plain<N>::type, width> Packed;
        if (stride != 0) {
            return ((const Packed*)first)[place];
        }
        Packed same;
        for (u32 k = 0; k < width; k++) {
            same.element[k] = first[0];
        }
        return same;
    }
};

// A line of operand number `operand`, which begins where `offsets` say.
template <class N, u32 operands>
__device__ inline Line<N> line_of(N* first, const Lines<operands>& lines, const Offsets<operands>& offsets, u32 operand) {
    return Line<N>{first + offsets.of[operand], lines.nest.strides[operand][lines.nest.rank - 1]};
}

// Calls `body(offsets)` for each of the lines that fall to this thread.
template <u32 operands, class Body>
__device__ inline void each_line(const Lines<operands>& lines, Body body) {
    u64 step = (u64)gridDim.y * blockDim.y;
    for (u64 line = (u64)blockIdx.y * blockDim.y + threadIdx.y; line < lines.count; line += step) {
        body(offsets_along(lines.nest, lines.nest.rank - 1, line));
    }
}

// The elements that fall to a thread: `first`, and each `step` further on, below `length`.
struct Share {
    u64 first, step, length;
    bool is_packed;
};

template <u32 operands>
__device__ inline Share share_of_line(const Lines<operands>& lines) {
    return Share{first_element(), all_threads(), lines.nest.lengths[lines.nest.rank - 1], lines.is_packed != 0};
}

// Each element of a pack from those of others at its place.
template <class O, u32 width, class Function, class... I>
__device__ inline Pack<O, width> pack_by(Function function, const Pack<I, width>&... in) {
    Pack<O, width> out;
    for (u32 k = 0; k < width; k++) {
        out.element[k] = function(in.element[k]...);
    }
    return out;
}

// `out = function(in …)` for this thread's share.
template <u32 width, class O, class Function, class... I>
__device__ inline void write_line(const Share& share, Line<O> out, Function function, Line<I>... in) {
    u64 packs = share.is_packed ? share.length / width : 0;
    for (u64 place = share.first; place < packs; place += share.step) {
        ((Pack<O, width>*)out.first)[place] = pack_by<O, width>(function, in.template pack<width>(place)...);
    }
    for (u64 place = packs * width + share.first; place < share.length; place += share.step) {
        out.at(place) = function(in.at(place)...);
    }
}
