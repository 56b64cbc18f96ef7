// Window: the positions of the kernel of a convolution or pooling on images.
#pragma once
#include "nest.cuh"

// Of two numbers each, the first is down, the second to the right.
struct Window {
    u64 kernel[2];
    u64 stride[2];
    u64 padding[2];
    // The dilation; 1 for pooling.
    u64 dilation[2];
    // The number of positions in all, and the first that is meant, counted row by row.
    u64 places[2];
    u64 first;
};

// From one number up to another.
struct Range {
    u64 start;
    u64 end;
};

// The windows along an axis that a pixel lies in, perhaps between the elements of the kernel.
__device__ inline Range windows_over(const Window& window, u32 axis, u64 pixel) {
    u64 at = pixel + window.padding[axis], stride = window.stride[axis];
    u64 span = (window.kernel[axis] - 1) * window.dilation[axis] + 1;
    u64 end = quotient(at, stride) + 1;
    u64 start = at < span ? 0 : quotient(at - span, stride) + 1;
    return {start, end < window.places[axis] ? end : window.places[axis]};
}

// The pixels of an axis of `size` that the window at `place` covers, with a dilation of 1.
__device__ inline Range pixels_under(const Window& window, u32 axis, u64 place, u64 size) {
    u64 start = place * window.stride[axis], end = start + window.kernel[axis], padding = window.padding[axis];
    end = end < padding ? 0 : end - padding;
    start = start < padding ? 0 : start - padding;
    return {start, end < size ? end : size};
}
