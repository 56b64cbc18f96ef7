// Channel dropout: zeroes whole channels at random. T is any floating-point type.
#include "lines.cuh"
#include "philox.cuh"

const u32 WIDTH = 16 / sizeof(T);

// Channels lie one after another, and so do the numbers at a channel's places.
KERNEL void dropout_channels(T* out, const T* in, u64 channels, u64 places, u32 is_packed, const Draw draw, u32 bound,
                             f64 factor) {
    Share share{first_element(), all_threads(), places, is_packed != 0};
    u64 step = (u64)gridDim.y * blockDim.y;
    for (u64 channel = (u64)blockIdx.y * blockDim.y + threadIdx.y; channel < channels; channel += step) {
        Words words = words_of(draw, channel / GROUP);
        u32 word = 0;
        for (u32 k = 0; k < GROUP; k++) {
            word = k == channel % GROUP ? words.of[k] : word;
        }
        Real kept = step_of(word) < bound ? Real(0) : (Real)factor;
        write_line<WIDTH>(
            share, Line<T>{out + channel * places, 1}, [=](T x) { return store<T>(load(x) * kept); },
            Line<const T>{in + channel * places, 1});
    }
}
EXPORT_PLAIN(dropout_channels)
