// Pool: the maximum or the mean of each window of an image. T is any floating-point type.
//
// A thread has an element of the output (the result, or in backward a pixel), which gathers from the windows that
// it lies in, in their order.
#include "block.cuh"
#include "nest.cuh"
#include "window.cuh"

// Images `[batch, channels, height, width]`: their size, and the positions of the elements that are read.
struct Images {
    u64 planes;
    u64 channels;
    u64 size[2];
    u64 strides[4];
};

// An element of the output, with its plane, and the line and column in it.
struct Spot {
    u64 plane;
    u64 down;
    u64 right;
};

__device__ inline Spot spot_of(u64 element, const u64* size) {
    u64 line = quotient(element, size[1]), plane = quotient(line, size[0]);
    return {plane, line - plane * size[0], element - line * size[1]};
}

// The start in the input of the plane that an element belongs to.
__device__ inline u64 plane_at(const Images& images, u64 plane) {
    u64 image = quotient(plane, images.channels);
    return image * images.strides[0] + (plane - image * images.channels) * images.strides[1];
}

// Without `places`, they are not written; they are bytes or whole numbers.
KERNEL void max_pool(T* out, u8* bytes, i64* wholes, const T* in, const Window window, const Images images) {
    u64 elements = images.planes * window.places[0] * window.places[1];
    for (u64 element = first_element(); element < elements; element += all_threads()) {
        Spot spot = spot_of(element, window.places);
        const T* plane = in + plane_at(images, spot.plane);
        Range lines = pixels_under(window, 0, spot.down, images.size[0]);
        Range columns = pixels_under(window, 1, spot.right, images.size[1]);
        bool has_any = false;
        Real largest = 0;
        u64 at = 0, line = 0, column = 0;
        for (u64 y = lines.start; y < lines.end; y++) {
            for (u64 x = columns.start; x < columns.end; x++) {
                u64 here = y * images.strides[2] + x * images.strides[3];
                Real value = load(plane[here]);
                if (!has_any || value > largest || (value != value && largest == largest)) {
                    has_any = true;
                    largest = value;
                    at = here;
                    line = y;
                    column = x;
                }
            }
        }
        out[element] = plane[at];
        if (bytes || wholes) {
            u64 i = line + window.padding[0] - spot.down * window.stride[0];
            u64 j = column + window.padding[1] - spot.right * window.stride[1];
            u64 within = has_any ? i * window.kernel[1] + j : 0;
            if (bytes) {
                bytes[element] = (u8)within;
            } else {
                wholes[element] = (i64)within;
            }
        }
    }
}
EXPORT_PLAIN(max_pool)

// The strides are those of `grad`; `out` and the places lie one after another.
KERNEL void __launch_bounds__(THREADS, 4) max_pool_backward(T* out, const T* grad, const u8* bytes, const i64* wholes, const Window window,
                              const Images images) {
    u64 elements = images.planes * images.size[0] * images.size[1];
    for (u64 element = first_element(); element < elements; element += all_threads()) {
        Spot spot = spot_of(element, images.size);
        Range down = windows_over(window, 0, spot.down), right = windows_over(window, 1, spot.right);
        const T* plane = grad + plane_at(images, spot.plane);
        u64 first = spot.plane * window.places[0] * window.places[1];
        Real sum = load(out[element]);
        for (u64 y = down.start; y < down.end; y++) {
            for (u64 x = right.start; x < right.end; x++) {
                u64 i = spot.down + window.padding[0] - y * window.stride[0];
                u64 j = spot.right + window.padding[1] - x * window.stride[1];
                u64 place = first + y * window.places[1] + x;
                i64 within = bytes ? (i64)bytes[place] : wholes[place];
                if (within == (i64)(i * window.kernel[1] + j)) {
                    sum += load(plane[y * images.strides[2] + x * images.strides[3]]);
                }
            }
        }
        out[element] = store<T>(sum);
    }
}
EXPORT_PLAIN(max_pool_backward)

// Number of pixels of an axis that a mean counts: those in the image, or also those in its padding. The part of the
// window at `place` beyond the padding, where the last one is not full, never counts.
__device__ inline u64 counted(const Window& window, u32 axis, u64 place, u64 size, u32 counts_padding) {
    if (!counts_padding) {
        Range pixels = pixels_under(window, axis, place, size);
        return pixels.end > pixels.start ? pixels.end - pixels.start : 1;
    }
    u64 left = size + 2 * window.padding[axis] - place * window.stride[axis];
    return left < window.kernel[axis] ? left : window.kernel[axis];
}

KERNEL void avg_pool(T* out, const T* in, const Window window, const Images images, u32 counts_padding) {
    u64 elements = images.planes * window.places[0] * window.places[1];
    for (u64 element = first_element(); element < elements; element += all_threads()) {
        Spot spot = spot_of(element, window.places);
        const T* plane = in + plane_at(images, spot.plane);
        Range lines = pixels_under(window, 0, spot.down, images.size[0]);
        Range columns = pixels_under(window, 1, spot.right, images.size[1]);
        Real sum = 0;
        for (u64 y = lines.start; y < lines.end; y++) {
            for (u64 x = columns.start; x < columns.end; x++) {
                sum += load(plane[y * images.strides[2] + x * images.strides[3]]);
            }
        }
        u64 over = counted(window, 0, spot.down, images.size[0], counts_padding) *
                   counted(window, 1, spot.right, images.size[1], counts_padding);
        out[element] = store<T>(sum / (Real)over);
    }
}
EXPORT_PLAIN(avg_pool)

// The strides are those of `grad`; `out` lies in order.
KERNEL void avg_pool_backward(T* out, const T* grad, const Window window, const Images images, u32 counts_padding) {
    u64 elements = images.planes * images.size[0] * images.size[1];
    for (u64 element = first_element(); element < elements; element += all_threads()) {
        Spot spot = spot_of(element, images.size);
        Range down = windows_over(window, 0, spot.down), right = windows_over(window, 1, spot.right);
        const T* plane = grad + plane_at(images, spot.plane);
        Real sum = load(out[element]);
        for (u64 y = down.start; y < down.end; y++) {
            u64 lines = counted(window, 0, y, images.size[0], counts_padding);
            for (u64 x = right.start; x < right.end; x++) {
                u64 over = lines * counted(window, 1, x, images.size[1], counts_padding);
                sum += load(plane[y * images.strides[2] + x * images.strides[3]]) / (Real)over;
            }
        }
        out[element] = store<T>(sum);
    }
}
EXPORT_PLAIN(avg_pool_backward)
