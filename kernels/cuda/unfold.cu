// Unfold: copies an image's windows into columns of a matrix (im2col), and adds columns back to the image. T is any
// floating-point type.
#include "block.cuh"
#include "nest.cuh"
#include "window.cuh"

// An image `[channels, height, width]`, and columns of it, `[channels · kernel height · kernel width, places]`.
struct Unfolded {
    u64 channels;
    u64 size[2];
    u64 strides[3];
    u64 count;
    // The strides of the columns' rows, and of the elements in them.
    u64 down;
    u64 right;
};

// Threads of a block lie `across` beside one another along places; the others take other channels. Each goes through
// the kernel at its place, or, where blocks are many in depth, some of its lines, so that neighbours read and write
// neighbours.
KERNEL void unfold(T* out, const T* image, const Window window, const Unfolded shape, u32 across) {
    u32 x = threadIdx.x % across, y = threadIdx.x / across, beside = THREADS / across;
    u64 kernel = window.kernel[0] * window.kernel[1];
    for (u64 place = (u64)blockIdx.x * across + x; place < shape.count; place += (u64)gridDim.x * across) {
        u64 line = quotient(window.first + place, window.places[1]);
        // Where the kernel begins, and with a distance too far ahead where it begins before the image.
        u64 top = line * window.stride[0] - window.padding[0];
        u64 left = (window.first + place - line * window.places[1]) * window.stride[1] - window.padding[1];
        for (u64 channel = (u64)blockIdx.y * beside + y; channel < shape.channels; channel += (u64)gridDim.y * beside) {
            const T* plane = image + channel * shape.strides[0];
            T* first = out + channel * kernel * shape.down + place * shape.right;
            for (u64 i = blockIdx.z; i < window.kernel[0]; i += gridDim.z) {
                T* to = first + i * window.kernel[1] * shape.down;
                for (u64 j = 0; j < window.kernel[1]; j++) {
                    u64 down = top + i * window.dilation[0], right = left + j * window.dilation[1];
                    bool is_in = down < shape.size[0] && right < shape.size[1];
                    *to = is_in ? plane[down * shape.strides[1] + right * shape.strides[2]] : store<T>(Real(0));
                    to += shape.down;
                }
            }
        }
    }
}
EXPORT_PLAIN(unfold)

// The part of an image that columns go back to.
struct Region {
    u64 first[2];
    u64 size[2];
};

// The element of the kernel that lies `distance` from its beginning, and whether there is one.
__device__ inline bool is_element(u64* element, u64 distance, u64 dilation) {
    *element = dilation == 1 ? distance : quotient(distance, dilation);
    return *element * dilation == distance;
}

// Each pixel gathers from the columns that it is in, in the order of their rows. Threads of a block lie `across` beside
// one another along the image's lines.
KERNEL void __launch_bounds__(THREADS, 4) fold_add(T* image, const T* columns, const Window window, const Unfolded shape, const Region region,
                     u32 across) {
    u32 x = threadIdx.x % across, y = threadIdx.x / across, beside = THREADS / across;
    u64 lines = shape.channels * region.size[0];
    for (u64 pixel = (u64)blockIdx.x * across + x; pixel < region.size[1]; pixel += (u64)gridDim.x * across) {
        u64 right = region.first[1] + pixel;
        Range to_right = windows_over(window, 1, right);
        for (u64 line = (u64)blockIdx.y * beside + y; line < lines; line += (u64)gridDim.y * beside) {
            u64 channel = quotient(line, region.size[0]);
            u64 down = region.first[0] + line - channel * region.size[0];
            Range to_down = windows_over(window, 0, down);
            T* target = image + channel * shape.strides[0] + down * shape.strides[1] + right * shape.strides[2];
            Real sum = load(*target);
            // Windows further ahead have the pixel in an earlier row of the kernel.
            for (u64 row = to_down.end; row-- > to_down.start;) {
                u64 i = 0, j = 0;
                if (!is_element(&i, down + window.padding[0] - row * window.stride[0], window.dilation[0])) {
                    continue;
                }
                for (u64 column = to_right.end; column-- > to_right.start;) {
                    u64 place = row * window.places[1] + column - window.first;
                    u64 distance = right + window.padding[1] - column * window.stride[1];
                    if (place < shape.count && is_element(&j, distance, window.dilation[1])) {
                        u64 number = (channel * window.kernel[0] + i) * window.kernel[1] + j;
                        sum += load(columns[number * shape.down + place * shape.right]);
                    }
                }
            }
            *target = store<T>(sum);
        }
    }
}
EXPORT_PLAIN(fold_add)
