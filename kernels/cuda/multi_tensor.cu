// Each: elementwise functions of many tensors in one launch, each tensor in order. T is any floating-point type.
//
// Only the functions that optimizers apply to all parameters.
#include "functions.cuh"
#include "multi_tensor.cuh"

const u32 WIDTH = 16 / sizeof(T);
// Bytes of arguments that tell of tensors.
const u32 BYTES = 4000;
typedef Many<2, tensors_in(BYTES, 2)> Pairs;
typedef Many<3, tensors_in(BYTES, 3)> Triples;

// A function's own numbers, of which some have none.
struct Numbers {
    f64 a, b;
};

// `write(share, lines …)` for this block's part of the operands, the first of which is written.
template <u32 most, class Write>
__device__ inline void for_chunk(const Many<2, most>& tensors, Write write) {
    Chunk<2> chunk = chunk_of_block(tensors);
    bool is_packed = chunk.is_aligned<T, WIDTH>(0) && chunk.is_aligned<T, WIDTH>(1);
    write(share_of_chunk(chunk, is_packed), Line<T>{chunk.at<T>(0), 1}, Line<T>{chunk.at<T>(1), 1});
}

template <u32 most, class Write>
__device__ inline void for_chunk(const Many<3, most>& tensors, Write write) {
    Chunk<3> chunk = chunk_of_block(tensors);
    bool is_packed =
        chunk.is_aligned<T, WIDTH>(0) && chunk.is_aligned<T, WIDTH>(1) && chunk.is_aligned<T, WIDTH>(2);
    write(share_of_chunk(chunk, is_packed), Line<T>{chunk.at<T>(0), 1}, Line<T>{chunk.at<T>(1), 1},
          Line<T>{chunk.at<T>(2), 1});
}

#define UNARY(NAME)                                                                              \
    KERNEL void unary_##NAME##_each(const Pairs tensors, const Numbers numbers) {                \
        for_chunk(tensors, [=](const Share& share, Line<T> out, Line<T> in) {                    \
            Unary_##NAME function{(Real)numbers.a, (Real)numbers.b};                             \
            write_line<WIDTH>(share, out, function, in);                                         \
        });                                                                                      \
    }                                                                                            \
    EXPORT_PLAIN(unary_##NAME##_each)

#define BINARY(NAME)                                                                             \
    KERNEL void binary_##NAME##_each(const Triples tensors, const Numbers numbers) {             \
        for_chunk(tensors, [=](const Share& share, Line<T> out, Line<T> left, Line<T> right) {   \
            write_line<WIDTH>(share, out, Binary_##NAME{(Real)numbers.a}, left, right);          \
        });                                                                                      \
    }                                                                                            \
    EXPORT_PLAIN(binary_##NAME##_each)

#define TERNARY(NAME)                                                                            \
    KERNEL void ternary_##NAME##_each(const Triples tensors, const Numbers numbers) {            \
        for_chunk(tensors, [=](const Share& share, Line<T> out, Line<T> left, Line<T> right) {   \
            Ternary_##NAME function{(Real)numbers.a, (Real)numbers.b};                           \
            write_line<WIDTH>(share, out, function, out, left, right);                           \
        });                                                                                      \
    }                                                                                            \
    EXPORT_PLAIN(ternary_##NAME##_each)

UNARY(affine)
UNARY(affine_sqrt)

BINARY(add_scaled)
BINARY(lerp)

TERNARY(add_mul)
TERNARY(add_div)
