// Numbers: their bits, their conversions, and what whole numbers can do on a GPU.
#pragma once

namespace cpu {

template <class To, class From>
inline To bits_as(From value) {
    static_assert(sizeof(To) == sizeof(From), "of one size");
    To result;
    memcpy(&result, &value, sizeof result);
    return result;
}

// IEEE half precision to single: exact.
inline float of_half(unsigned short bits) {
    unsigned sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31u, fraction = bits & 0x3ffu;
    if (exponent == 31) {
        return bits_as<float>(sign | 0x7f800000u | fraction << 13);
    }
    if (exponent == 0) {
        float small = (float)fraction * 0x1p-24f;
        return sign != 0 ? -small : small;
    }
    return bits_as<float>(sign | exponent + 112u << 23 | fraction << 13);
}

// Single precision to half: the nearest, halfway to even.
inline unsigned short to_half(float value) {
    unsigned bits = bits_as<unsigned>(value);
    unsigned sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) {
        return 0x7fffu;
    }
    if (size >= 0x477ff000u) {
        return sign | 0x7c00u;
    }
    if (size < 0x38800000u) {
        // Added to a half, what is too small for the format falls off its end, rounded.
        float aligned = bits_as<float>(size) + 0.5f;
        return sign | (bits_as<unsigned>(aligned) - 0x3f000000u);
    }
    unsigned odd = size >> 13 & 1u;
    return sign | (size - 0x38000000u + 0xfffu + odd) >> 13;
}

// To a whole number as GPUs do: what is too large becomes the largest, what is no number 0.
template <class Whole, class Fraction>
inline Whole to_whole(Fraction value) {
    const Whole most = (Whole)(sizeof(Whole) == 4 ? (std::is_signed<Whole>::value ? (uint64_t)INT_MAX : (uint64_t)UINT_MAX)
                                                  : (std::is_signed<Whole>::value ? (uint64_t)LLONG_MAX : ULLONG_MAX));
    const Whole least = std::is_signed<Whole>::value ? (Whole)(-most - 1) : (Whole)0;
    if (value != value) {
        return 0;
    }
    if (value >= (Fraction)most) {
        return most;
    }
    return value <= (Fraction)least ? least : (Whole)value;
}

}  // namespace cpu

inline unsigned __float_as_uint(float value) { return cpu::bits_as<unsigned>(value); }
inline int __float_as_int(float value) { return cpu::bits_as<int>(value); }
inline float __uint_as_float(unsigned bits) { return cpu::bits_as<float>(bits); }
inline float __int_as_float(int bits) { return cpu::bits_as<float>(bits); }
inline long long __double_as_longlong(double value) { return cpu::bits_as<long long>(value); }
inline double __longlong_as_double(long long bits) { return cpu::bits_as<double>(bits); }
inline int __double2hiint(double value) { return (int)(cpu::bits_as<uint64_t>(value) >> 32); }
inline int __double2loint(double value) { return (int)cpu::bits_as<uint64_t>(value); }

#define CONVERSIONS(FRACTION, NAME, WHOLE, TYPE)                                                          \
    inline TYPE __##NAME##2##WHOLE##_rn(FRACTION value) { return cpu::to_whole<TYPE>(nearbyint(value)); } \
    inline TYPE __##NAME##2##WHOLE##_rz(FRACTION value) { return cpu::to_whole<TYPE>(trunc(value)); }     \
    inline TYPE __##NAME##2##WHOLE##_rd(FRACTION value) { return cpu::to_whole<TYPE>(floor(value)); }     \
    inline TYPE __##NAME##2##WHOLE##_ru(FRACTION value) { return cpu::to_whole<TYPE>(ceil(value)); }
CONVERSIONS(float, float, int, int)
CONVERSIONS(float, float, uint, unsigned)
CONVERSIONS(float, float, ll, long long)
CONVERSIONS(float, float, ull, unsigned long long)
CONVERSIONS(double, double, int, int)
CONVERSIONS(double, double, uint, unsigned)
CONVERSIONS(double, double, ll, long long)
CONVERSIONS(double, double, ull, unsigned long long)
#undef CONVERSIONS
inline float __int2float_rn(int value) { return (float)value; }
inline float __uint2float_rn(unsigned value) { return (float)value; }
inline float __ll2float_rn(long long value) { return (float)value; }
inline float __ull2float_rn(unsigned long long value) { return (float)value; }
inline float __double2float_rn(double value) { return (float)value; }
inline double __ll2double_rn(long long value) { return (double)value; }
inline double __ull2double_rn(unsigned long long value) { return (double)value; }

inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
inline int __mulhi(int a, int b) { return (int)((int64_t)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __popcll(unsigned long long bits) { return __builtin_popcountll(bits); }
inline int __clz(int bits) { return bits == 0 ? 32 : __builtin_clz((unsigned)bits); }
inline int __clzll(long long bits) { return bits == 0 ? 64 : __builtin_clzll((unsigned long long)bits); }
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline int __ffsll(long long bits) { return __builtin_ffsll(bits); }
inline unsigned __brev(unsigned bits) {
    unsigned reversed = 0;
    for (int i = 0; i < 32; i++) {
        reversed |= (bits >> i & 1u) << (31 - i);
    }
    return reversed;
}
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned choice) {
    uint64_t both = (uint64_t)high << 32 | low;
    unsigned result = 0;
    for (int i = 0; i < 4; i++) {
        result |= (unsigned)(both >> (choice >> 4 * i & 7u) * 8 & 0xffu) << 8 * i;
    }
    return result;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned bits) {
    return (unsigned)(((uint64_t)high << 32 | low) << (bits & 31u) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned bits) {
    return (unsigned)(((uint64_t)high << 32 | low) >> (bits & 31u));
}

// Reads and writes past caches are reads and writes.
#define LOADS(NAME)                            \
    template <class Value>                     \
    inline Value NAME(const Value* place) {    \
        return *place;                         \
    }
LOADS(__ldg)
LOADS(__ldcg)
LOADS(__ldca)
LOADS(__ldcs)
LOADS(__ldlu)
LOADS(__ldcv)
#undef LOADS
#define STORES(NAME)                                                            \
    template <class Value>                                                      \
    inline void NAME(Value* place, typename cpu::Itself<Value>::type value) {   \
        *place = value;                                                         \
    }
STORES(__stwb)
STORES(__stcg)
STORES(__stcs)
STORES(__stwt)
#undef STORES
