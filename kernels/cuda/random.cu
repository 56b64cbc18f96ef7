// Random: random elements in contiguous memory, and dropout. T is any floating-point type.
#include "nest.cuh"
#include "philox.cuh"

typedef Pack<T, GROUP> Four;

// `numbers(words, four)` for every group of four elements, the last of which may be cut.
template <class Numbers>
__device__ inline void draw_all(T* out, const T* in, u64 elements, u32 is_packed, const Draw& draw, Numbers numbers) {
    for (u64 group = first_element(); group * GROUP < elements; group += all_threads()) {
        Words words = words_of(draw, group);
        u64 first = group * GROUP;
        Four four = {};
        if (is_packed && first + GROUP <= elements) {
            if (in) {
                four = ((const Four*)in)[group];
            }
            numbers(words, four);
            ((Four*)out)[group] = four;
            continue;
        }
        u32 count = elements - first < GROUP ? (u32)(elements - first) : GROUP;
        for (u32 k = 0; in && k < count; k++) {
            four.element[k] = in[first + k];
        }
        numbers(words, four);
        for (u32 k = 0; k < count; k++) {
            out[first + k] = four.element[k];
        }
    }
}

// Sums and products are rounded one by one, as on the host: random numbers are the same on every device.
KERNEL void random_uniform(T* out, u64 elements, u32 is_packed, const Draw draw, f64 low, f64 high) {
    f64 range = __dsub_rn(high, low);
    draw_all(out, (const T*)nullptr, elements, is_packed, draw, [=](const Words& words, Four& four) {
        for (u32 k = 0; k < GROUP; k++) {
            f64 number = (f64)uniform_of(words.of[k]);
            four.element[k] = store<T>((Real)__dadd_rn(low, __dmul_rn(range, number)));
        }
    });
}
EXPORT_PLAIN(random_uniform)

KERNEL void random_normal(T* out, u64 elements, u32 is_packed, const Draw draw, f64 mean, f64 deviation) {
    draw_all(out, (const T*)nullptr, elements, is_packed, draw, [=](const Words& words, Four& four) {
        Normals normals = normals_of(words);
        for (u32 k = 0; k < GROUP; k++) {
            four.element[k] = store<T>((Real)__dadd_rn(mean, __dmul_rn(deviation, normals.of[k])));
        }
    });
}
EXPORT_PLAIN(random_normal)

// An element becomes 0 if its number of 2²⁴ steps is below `bound`, else it is multiplied with `factor`.
KERNEL void dropout(T* out, const T* in, u64 elements, u32 is_packed, const Draw draw, u32 bound, f64 factor) {
    Real kept = (Real)factor;
    draw_all(out, in, elements, is_packed, draw, [=](const Words& words, Four& four) {
        for (u32 k = 0; k < GROUP; k++) {
            Real share = step_of(words.of[k]) < bound ? Real(0) : kept;
            four.element[k] = store<T>(load(four.element[k]) * share);
        }
    });
}
EXPORT_PLAIN(dropout)
