// Frequencies: positional encoding, each element with its sines and cosines at doubling frequencies. T is any
// floating-point type.
#include "maths.cuh"
#include "nest.cuh"

__device__ inline Real speed_of(u32 octave) { return ldexp(Real(1), (i32)octave); }

// Rows of `width` numbers become rows of `wide`. A block's threads lie along x within a row, along y over rows, so that
// a thread computes the values for its column only once.
KERNEL void frequencies(T* out, const T* in, u64 rows, u32 width, u32 wide) {
    for (u32 column = blockIdx.x * blockDim.x + threadIdx.x; column < wide; column += gridDim.x * blockDim.x) {
        u32 place = column % width, wave = column / width;
        Real speed = wave == 0 ? Real(1) : speed_of((wave - 1) / 2);
        u64 step = (u64)gridDim.y * blockDim.y;
        for (u64 row = (u64)blockIdx.y * blockDim.y + threadIdx.y; row < rows; row += step) {
            T own = in[row * width + place];
            Real sine, cosine;
            sine_and_cosine(speed * load(own), &sine, &cosine);
            // Odd waves are sines. All lanes compute both, rather than some the one and then the others the other.
            out[row * wide + column] = wave == 0 ? own : store<T>(wave % 2 == 1 ? sine : cosine);
        }
    }
}
EXPORT_PLAIN(frequencies)

KERNEL void frequencies_backward(T* out, const T* grad, const T* in, u64 elements, u32 width, u32 wide) {
    u32 octaves = (wide / width - 1) / 2;
    for (u64 i = first_element(); i < elements; i += all_threads()) {
        u64 row = i / width;
        const T* waves = grad + row * wide + (i - row * width);
        Real x = load(in[i]), total = load(waves[0]);
        for (u32 octave = 0; octave < octaves; octave++) {
            Real speed = speed_of(octave), sine, cosine;
            sine_and_cosine(speed * x, &sine, &cosine);
            waves += width;
            Real of_sine = load(waves[0]);
            waves += width;
            total += speed * (of_sine * cosine - load(waves[0]) * sine);
        }
        out[i] = store<T>(total);
    }
}
EXPORT_PLAIN(frequencies_backward)
