// Philox: random words that depend only on a seed and an index, bit for bit the same as on the host.
//
// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011).
#pragma once
#include "number.cuh"

// Numbers that are drawn at once.
const u32 GROUP = 4;

// A place in the stream of a seed.
struct Draw {
    u64 seed, start;
};

struct Words {
    u32 of[GROUP];
};

__device__ inline Words words_of(const Draw& draw, u64 group) {
    u64 place = draw.start + group;
    u32 low = (u32)draw.seed, high = (u32)(draw.seed >> 32);
    u32 a = (u32)place, b = (u32)(place >> 32), c = 0, d = 0;
#pragma unroll
    for (u32 round = 0; round < 10; round++) {
        u64 first = (u64)0xd2511f53u * a, second = (u64)0xcd9e8d57u * c;
        a = (u32)(second >> 32) ^ b ^ low;
        b = (u32)second;
        c = (u32)(first >> 32) ^ d ^ high;
        d = (u32)first;
        low += 0x9e3779b9u;
        high += 0xbb67ae85u;
    }
    return Words{{a, b, c, d}};
}

// A word as one of 2²⁴ steps, of which a number from 0 to 1 is made.
__device__ inline u32 step_of(u32 word) { return word >> 8; }
__device__ inline f32 uniform_of(u32 word) { return (f32)step_of(word) * 0x1p-24f; }

struct Normals {
    f64 of[GROUP];
};

// Numbers of the bell curve, two from two words each (Box and Muller, 1958), in double precision.
__device__ inline Normals normals_of(const Words& words) {
    Normals normals;
    for (u32 pair = 0; pair < GROUP; pair += 2) {
        // From just above 0 to 1, so that the logarithm exists.
        f64 uniform = ((f64)words.of[pair] + 1.0) / 4294967296.0;
        f64 radius = sqrt(-2.0 * log(uniform));
        f64 angle = 6.283185307179586476925 * (f64)words.of[pair + 1] / 4294967296.0;
        normals.of[pair] = (f64)(f32)(radius * cos(angle));
        normals.of[pair + 1] = (f64)(f32)(radius * sin(angle));
    }
    return normals;
}
