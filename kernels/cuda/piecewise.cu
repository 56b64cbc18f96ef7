// Piecewise: piecewise linear functions, and their slopes in two bits an element. T is any floating-point type.
//
// A thread takes four elements, whose slopes are a byte, the first in its lowest bits.
#include "nest.cuh"

const u32 A_BYTE = 4;
typedef Pack<T, A_BYTE> Four;

// The meaning of the two bits. ODD is −1; of two operands, that both slopes are 1, as one of them is NaN.
const u32 ODD = 0, FLAT = 1, HALF = 2, RISES = 3;

struct Piece {
    Real value;
    u32 slope;
};

// Which of two has the gradient of the larger.
__device__ inline u32 shares(Real l, Real r) { return l > r ? RISES : l < r ? FLAT : l == r ? HALF : ODD; }

__device__ inline Real larger(Real l, Real r) { return l >= r || l != l ? l : r; }

__device__ inline Piece piece_of_abs(Real x, Real, Real, Real) {
    return Piece{x < Real(0) ? -x : x + Real(0), x > Real(0) ? RISES : x < Real(0) ? ODD : FLAT};
}

__device__ inline Piece piece_of_clamp(Real x, Real, Real low, Real high) {
    Real raised = x < low ? low : x;
    return Piece{raised > high ? high : raised, x > low && x < high ? RISES : FLAT};
}

__device__ inline Piece piece_of_maximum(Real l, Real r, Real, Real) { return Piece{larger(l, r), shares(l, r)}; }

__device__ inline Piece piece_of_minimum(Real l, Real r, Real, Real) { return Piece{-larger(-l, -r), shares(-l, -r)}; }

typedef Piece (*Pieces)(Real l, Real r, Real low, Real high);

// The operands of the nest are output, left and right. `is_packed`: all lie one after another, where four can be moved.
template <Pieces piece_of>
__device__ inline void cut(T* out, u8* slopes, const T* left, const T* right, u64 elements, const Nest<3>& nest,
                           u32 is_packed, Real low, Real high) {
    for (u64 group = first_element(); group * A_BYTE < elements; group += all_threads()) {
        u64 first = group * A_BYTE;
        u32 count = elements - first < A_BYTE ? (u32)(elements - first) : A_BYTE;
        bool packed = is_packed && count == A_BYTE;
        Four l = {}, r = {}, written;
        if (packed) {
            l = ((const Four*)left)[group];
            r = ((const Four*)right)[group];
        }
        for (u32 k = 0; !packed && k < count; k++) {
            Offsets<3> at = offsets_of(nest, first + k);
            l.element[k] = left[at.of[1]];
            r.element[k] = right[at.of[2]];
        }
        u32 bits = 0;
        for (u32 k = 0; k < A_BYTE; k++) {
            Piece piece = piece_of(load(l.element[k]), load(r.element[k]), low, high);
            written.element[k] = store<T>(piece.value);
            bits |= k < count ? piece.slope << 2 * k : 0;
        }
        if (packed) {
            ((Four*)out)[group] = written;
        }
        for (u32 k = 0; !packed && k < count; k++) {
            out[first + k] = written.element[k];
        }
        if (slopes) {
            slopes[group] = (u8)bits;
        }
    }
}

#define PIECEWISE(NAME)                                                                                          \
    KERNEL void piecewise_##NAME(T* out, u8* slopes, const T* left, const T* right, u64 elements,                \
                                 const Nest<3> nest, u32 is_packed, f64 low, f64 high) {                         \
        cut<piece_of_##NAME>(out, slopes, left, right, elements, nest, is_packed, (Real)low, (Real)high);        \
    }                                                                                                            \
    EXPORT_PLAIN(piecewise_##NAME)

PIECEWISE(abs)
PIECEWISE(clamp)
PIECEWISE(maximum)
PIECEWISE(minimum)

// `negative`: what ODD stands for, −1 or 1. `rises`: what of RISES and FLAT has the slope 1.
__device__ inline T sloped(T grad, u32 slope, u32 rises, Real negative) {
    if (slope == rises) {
        return grad;
    }
    Real factor = slope == HALF ? Real(0.5) : negative;
    return slope == HALF || slope == ODD ? store<T>(factor * load(grad)) : store<T>(Real(0));
}

KERNEL void piecewise_backward(T* out, const T* grad, const u8* slopes, u64 elements, u32 is_packed, u32 rises,
                               f64 negative) {
    for (u64 group = first_element(); group * A_BYTE < elements; group += all_threads()) {
        u64 first = group * A_BYTE;
        u32 bits = slopes[group];
        if (is_packed && first + A_BYTE <= elements) {
            Four four = ((const Four*)grad)[group];
            for (u32 k = 0; k < A_BYTE; k++) {
                four.element[k] = sloped(four.element[k], bits >> 2 * k & 3, rises, (Real)negative);
            }
            ((Four*)out)[group] = four;
            continue;
        }
        for (u32 k = 0; k < A_BYTE && first + k < elements; k++) {
            out[first + k] = sloped(grad[first + k], bits >> 2 * k & 3, rises, (Real)negative);
        }
    }
}
EXPORT_PLAIN(piecewise_backward)
