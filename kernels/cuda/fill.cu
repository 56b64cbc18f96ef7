// Fill: one value everywhere, and copies from one layout to another. T is any type.
#include "nest.cuh"

KERNEL void fill(T* out, u64 elements, const Nest<1> nest, const T value) {
    for (u64 i = first_element(); i < elements; i += all_threads()) {
        out[offsets_of(nest, i).of[0]] = value;
    }
}
EXPORT_PLAIN(fill)

KERNEL void copy(T* out, const T* in, u64 elements, const Nest<2> nest) {
    for (u64 i = first_element(); i < elements; i += all_threads()) {
        Offsets<2> at = offsets_of(nest, i);
        out[at.of[0]] = in[at.of[1]];
    }
}
EXPORT_PLAIN(copy)
