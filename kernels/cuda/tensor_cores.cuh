// Tensor cores: the instructions by which a warp multiplies small matrices, of 16-bit floating-point elements,
// and of single-precision elements of which they read the first 11 bits.
//
// Every lane of the warp takes part. Which numbers a lane has of a matrix is told in "Parallel Thread Execution ISA",
// sections on `mma.m16n8k16`, `mma.m16n8k8` and `ldmatrix`. On the CPU, lanes exchange their numbers.
#pragma once
#include "block.cuh"

// Two 16-bit numbers a register, the first in the lower half.
//
// Of a 16 × 16 left matrix a lane has, in this order, the numbers of row lane / 4 and columns 2 · (lane % 4) and the
// next; those 8 rows below; and both 8 columns to the right.
struct Left16 {
    u32 pair[4];
};
// Of a 16 × 8 right matrix, the numbers of column lane / 4 and rows 2 · (lane % 4) and the next; and those 8 rows
// below. This is two of them, side by side.
struct Right16 {
    u32 pair[2][2];
};

// Of a 16 × 8 left matrix of single precision a lane has, in this order, the number of row lane / 4 and column lane %
// 4; that 8 rows below; and both 4 columns to the right.
struct Left8 {
    f32 number[4];
};
// Of an 8 × 8 right matrix, the number of column lane / 4 and row lane % 4, and that 4 rows below.
struct Right8 {
    f32 number[2];
};

#ifdef CUDA_ON_CPU
// The elements that each lane of each warp shows the others.
static const unsigned short* shown_rows[32][WARP];
static Left16 shown_left[32][WARP];
static u32 shown_right[32][WARP][2];
static Left8 shown_left_singles[32][WARP];
static Right8 shown_right_singles[32][WARP];
#endif

// Reads four 8 × 8 matrices from shared memory. Lane 8i + r says where row r of matrix i lies, at a multiple of 16
// bytes. A lane gets of each matrix columns 2 · (lane % 4) and the next of row lane / 4; or, turned, those rows of that
// column. The matrices' numbers have 16 bits, so that such a pair, not turned, can be a number of 32 as well.
template <bool is_turned>
__device__ inline void read_matrices(const void* row, u32& first, u32& second, u32& third, u32& fourth) {
#ifdef CUDA_ON_CPU
    u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if ((u64)row % 16 != 0) {
        __builtin_trap();
    }
    shown_rows[warp][lane] = (const unsigned short*)row;
    __syncwarp();
    u32 found[4];
    for (u32 matrix = 0; matrix < 4; matrix++) {
        const unsigned short** rows = &shown_rows[warp][8 * matrix];
        u32 pair = 2 * (lane % 4), line = lane / 4;
        u32 low = is_turned ? rows[pair][line] : rows[line][pair];
        u32 high = is_turned ? rows[pair + 1][line] : rows[line][pair + 1];
        found[matrix] = high << 16 | low;
    }
    __syncwarp();
    first = found[0], second = found[1], third = found[2], fourth = found[3];
#else
    u32 place = (u32)__cvta_generic_to_shared(row);
    if constexpr (is_turned) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(first), "=r"(second), "=r"(third), "=r"(fourth)
                     : "r"(place));
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(first), "=r"(second), "=r"(third), "=r"(fourth)
                     : "r"(place));
    }
#endif
}

// The operations of tensor cores on elements of a type.
template <class N>
struct Tensor;

#ifdef CUDA_ON_CPU
template <class N>
struct TensorOnCpu {
    static u32 pair(f32 low, f32 high) { return (u32)store<N>(high).bits << 16 | store<N>(low).bits; }
    static f32 part(u32 pair, u32 index) {
        N number;
        number.bits = (unsigned short)(pair >> 16 * index);
        return load(number);
    }
    static void multiply(f32& a, f32& b, f32& c, f32& d, const Left16& left, const u32 (&right)[2]) {
        u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
        shown_left[warp][lane] = left;
        shown_right[warp][lane][0] = right[0];
        shown_right[warp][lane][1] = right[1];
        __syncwarp();
        f32* sums[2][2] = {{&a, &b}, {&c, &d}};
        for (u32 low = 0; low < 2; low++) {
            for (u32 next = 0; next < 2; next++) {
                f32 sum = *sums[low][next];
                for (u32 k = 0; k < 16; k++) {
                    u32 row = shown_left[warp][lane / 4 * 4 + k % 8 / 2].pair[low + k / 8 * 2];
                    u32 column = shown_right[warp][(2 * (lane % 4) + next) * 4 + k % 8 / 2][k / 8];
                    sum += part(row, k % 2) * part(column, k % 2);
                }
                *sums[low][next] = sum;
            }
        }
        __syncwarp();
    }
};
template <>
struct Tensor<bf16> : TensorOnCpu<bf16> {};
template <>
struct Tensor<f16> : TensorOnCpu<f16> {};
#else
template <>
struct Tensor<bf16> {
    // Both rounded to the nearest.
    __device__ static u32 pair(f32 low, f32 high) {
        u32 both;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
        return both;
    }
    // Adds to a 16 × 8 matrix the product of the two. Of the sums, a lane has those of row lane / 4 and columns
    // 2 · (lane % 4) and the next, in a and b, and those 8 rows below, in c and d.
    __device__ static void multiply(f32& a, f32& b, f32& c, f32& d, const Left16& left, const u32 (&right)[2]) {
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+f"(a), "+f"(b), "+f"(c), "+f"(d)
            : "r"(left.pair[0]), "r"(left.pair[1]), "r"(left.pair[2]), "r"(left.pair[3]), "r"(right[0]), "r"(right[1]));
    }
};
template <>
struct Tensor<f16> {
    __device__ static u32 pair(f32 low, f32 high) {
        u32 both;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
        return both;
    }
    __device__ static void multiply(f32& a, f32& b, f32& c, f32& d, const Left16& left, const u32 (&right)[2]) {
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+f"(a), "+f"(b), "+f"(c), "+f"(d)
            : "r"(left.pair[0]), "r"(left.pair[1]), "r"(left.pair[2]), "r"(left.pair[3]), "r"(right[0]), "r"(right[1]));
    }
};
#endif

#ifdef CUDA_ON_CPU
// The first 11 bits of a number's significand, the first of which is not stored.
inline f64 first_bits(f32 number) { return of_bits(bits_of(number) & 0xffffe000u); }

// A sum with the bits of single precision that it begins with.
inline f32 cut_off(f64 sum) {
    f32 nearest = (f32)sum;
    bool is_beyond = fabs((f64)nearest) > fabs(sum) && nearest - nearest == 0.0f;
    return is_beyond ? of_bits(bits_of(nearest) - 1) : nearest;
}
#endif

// Adds to a 16 × 8 matrix the product of the two, of single precision; a lane has the sums that it has of 16-bit
// numbers' products. Products are exact, four are added to a sum at a time, and the sum is cut off, not rounded, as far
// as is known: Fasi, Higham, Mikaitis, Pranesh: "Numerical behavior of NVIDIA tensor cores", 2021.
__device__ inline void multiply_singles(f32& a, f32& b, f32& c, f32& d, const Left8& left, const Right8& right) {
#ifdef CUDA_ON_CPU
    u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    shown_left_singles[warp][lane] = left;
    shown_right_singles[warp][lane] = right;
    __syncwarp();
    f32* sums[2][2] = {{&a, &b}, {&c, &d}};
    for (u32 low = 0; low < 2; low++) {
        for (u32 next = 0; next < 2; next++) {
            f32* sum = sums[low][next];
            for (u32 half = 0; half < 2; half++) {
                f64 exact = *sum;
                for (u32 k = 0; k < 4; k++) {
                    f32 row = shown_left_singles[warp][lane / 4 * 4 + k].number[low + half * 2];
                    f32 column = shown_right_singles[warp][(2 * (lane % 4) + next) * 4 + k].number[half];
                    exact += first_bits(row) * first_bits(column);
                }
                *sum = cut_off(exact);
            }
        }
    }
    __syncwarp();
#else
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(a), "+f"(b), "+f"(c), "+f"(d)
        : "r"(bits_of(left.number[0])), "r"(bits_of(left.number[1])), "r"(bits_of(left.number[2])),
          "r"(bits_of(left.number[3])), "r"(bits_of(right.number[0])), "r"(bits_of(right.number[1])));
#endif
}
