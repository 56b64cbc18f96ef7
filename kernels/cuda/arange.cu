// Arange: evenly spaced values. T is any floating-point type, or a 64-bit integer.
#include "nest.cuh"

template <class N>
struct Sequence {
    f64 start, step;
    // Rounded one by one, as on the host.
    __device__ N at(u64 place) const { return store<N>((Real)__dadd_rn(start, __dmul_rn((f64)place, step))); }
};
template <>
struct Sequence<i64> {
    f64 start, step;
    __device__ i64 at(u64 place) const { return (i64)start + (i64)place * (i64)step; }
};

KERNEL void arange(T* out, u64 elements, f64 start, f64 step) {
    Sequence<T> sequence{start, step};
    for (u64 i = first_element(); i < elements; i += all_threads()) {
        out[i] = sequence.at(i);
    }
}
EXPORT_PLAIN(arange)
