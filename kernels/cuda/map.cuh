// Map: a function of each element, or of two at the same place, written to a third. T is any fraction.
//
// Each comes twice: for operands that lie one after another, and for any layout. What is written may be what is read.
#pragma once
#include "nest.cuh"

// Elements that a thread takes at a time: 16 bytes of them.
const u32 WIDTH = 16 / sizeof(T);
typedef Pack<T, WIDTH> Wide;

// `is_aligned`: all pointers are multiples of 16 bytes.
template <class F>
__device__ inline void map_all(T* out, const T* in, u64 elements, u32 is_aligned, F function) {
    u64 whole = is_aligned ? elements / WIDTH : 0;
    for (u64 i = first_element(); i < whole; i += all_threads()) {
        Wide row = ((const Wide*)in)[i];
        for (u32 k = 0; k < WIDTH; k++) {
            row.element[k] = store<T>(function(load(row.element[k])));
        }
        ((Wide*)out)[i] = row;
    }
    for (u64 i = whole * WIDTH + first_element(); i < elements; i += all_threads()) {
        out[i] = store<T>(function(load(in[i])));
    }
}

template <class F>
__device__ inline void map_nest(T* out, const T* in, u64 elements, const Nest<2>& nest, F function) {
    for (u64 i = first_element(); i < elements; i += all_threads()) {
        Offsets<2> at = offsets_of(nest, i);
        out[at.of[0]] = store<T>(function(load(in[at.of[1]])));
    }
}

template <class F>
__device__ inline void zip_all(T* out, const T* left, const T* right, u64 elements, u32 is_aligned, F function) {
    u64 whole = is_aligned ? elements / WIDTH : 0;
    for (u64 i = first_element(); i < whole; i += all_threads()) {
        Wide l = ((const Wide*)left)[i];
        Wide r = ((const Wide*)right)[i];
        for (u32 k = 0; k < WIDTH; k++) {
            l.element[k] = store<T>(function(load(l.element[k]), load(r.element[k])));
        }
        ((Wide*)out)[i] = l;
    }
    for (u64 i = whole * WIDTH + first_element(); i < elements; i += all_threads()) {
        out[i] = store<T>(function(load(left[i]), load(right[i])));
    }
}

template <class F>
__device__ inline void zip_nest(T* out, const T* left, const T* right, u64 elements, const Nest<3>& nest, F function) {
    for (u64 i = first_element(); i < elements; i += all_threads()) {
        Offsets<3> at = offsets_of(nest, i);
        out[at.of[0]] = store<T>(function(load(left[at.of[1]]), load(right[at.of[2]])));
    }
}
