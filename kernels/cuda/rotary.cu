// Rotary: rotates pairs of a head's elements by angles that grow with the position. T is any floating-point type.
#include "maths.cuh"
#include "nest.cuh"

struct Heads {
    u64 batch, places, heads, width;
    // From one to the next, in elements; those of a head lie one after another.
    u64 batch_distance, place_distance, head_distance;
    u64 first_position;
    f64 base;
    // 1, or −1 to turn back.
    f64 direction;
};

// A block's threads lie along x over pairs, of which each has its own frequency, and along y over places.
KERNEL void rotary(T* memory, const Heads heads) {
    u64 half = heads.width / 2;
    u64 places = heads.batch * heads.places, step = (u64)gridDim.y * blockDim.y;
    for (u64 pair = (u64)blockIdx.x * blockDim.x + threadIdx.x; pair < half; pair += (u64)gridDim.x * blockDim.x) {
        // In double precision: a position of many thousands leaves single precision few digits after the point.
        f64 frequency = pow(heads.base, -2.0 * (f64)pair / (f64)heads.width);
        for (u64 number = (u64)blockIdx.y * blockDim.y + threadIdx.y; number < places; number += step) {
            u64 image = number / heads.places, place = number - image * heads.places;
            f64 sine, cosine;
            sine_and_cosine((f64)(heads.first_position + place) * frequency, &sine, &cosine);
            Real across = (Real)cosine, up = (Real)(heads.direction * sine);
            T* first = memory + image * heads.batch_distance + place * heads.place_distance + pair;
#pragma unroll 4
            for (u64 head = 0; head < heads.heads; head++) {
                T* x = first + head * heads.head_distance;
                Real a = load(x[0]), b = load(x[half]);
                x[0] = store<T>(a * across - b * up);
                x[half] = store<T>(b * across + a * up);
            }
        }
    }
}
EXPORT_PLAIN(rotary)
