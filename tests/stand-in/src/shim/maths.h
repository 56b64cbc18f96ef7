// Maths: functions that CUDA has and C++ has not; those of <math.h> come in both precisions already.
#pragma once

// C++ has these for whole numbers, too, CUDA has not: what would not compile for a GPU shall not compile here.
#define NOT_OF_WHOLE_NUMBERS(NAME)                                                                       \
    template <class Whole, class = typename std::enable_if<std::is_integral<Whole>::value>::type>        \
    double NAME(Whole) = delete;
NOT_OF_WHOLE_NUMBERS(exp)
NOT_OF_WHOLE_NUMBERS(exp2)
NOT_OF_WHOLE_NUMBERS(expm1)
NOT_OF_WHOLE_NUMBERS(log)
NOT_OF_WHOLE_NUMBERS(log2)
NOT_OF_WHOLE_NUMBERS(log10)
NOT_OF_WHOLE_NUMBERS(log1p)
NOT_OF_WHOLE_NUMBERS(sqrt)
NOT_OF_WHOLE_NUMBERS(cbrt)
NOT_OF_WHOLE_NUMBERS(sin)
NOT_OF_WHOLE_NUMBERS(cos)
NOT_OF_WHOLE_NUMBERS(tan)
NOT_OF_WHOLE_NUMBERS(tanh)
NOT_OF_WHOLE_NUMBERS(erf)
NOT_OF_WHOLE_NUMBERS(erfc)
#undef NOT_OF_WHOLE_NUMBERS

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float rsqrt(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float rcbrtf(float x) { return 1.0f / cbrtf(x); }
inline double rcbrt(double x) { return 1.0 / cbrt(x); }
inline float exp10f(float x) { return powf(10.0f, x); }
inline float sinpif(float x) { return (float)sin(3.14159265358979323846 * fmod((double)x, 2.0)); }
inline float cospif(float x) { return (float)cos(3.14159265358979323846 * fmod((double)x, 2.0)); }
inline double sinpi(double x) { return sin(3.14159265358979323846 * fmod(x, 2.0)); }
inline double cospi(double x) { return cos(3.14159265358979323846 * fmod(x, 2.0)); }
inline float sinpi(float x) { return sinpif(x); }
inline float cospi(float x) { return cospif(x); }
inline void sincospif(float x, float* sine, float* cosine) {
    *sine = sinpif(x);
    *cosine = cospif(x);
}
inline void sincospi(double x, double* sine, double* cosine) {
    *sine = sinpi(x);
    *cosine = cospi(x);
}
inline float normcdff(float x) { return 0.5f * erfcf(x * -0.70710678118654752440f); }
inline double normcdf(double x) { return 0.5 * erfc(x * -0.70710678118654752440); }

// The fast ones, exactly.
inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return exp10f(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline float __tanhf(float x) { return tanhf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
inline void __sincosf(float x, float* sine, float* cosine) {
    *sine = sinf(x);
    *cosine = cosf(x);
}

// Those that say how they round: to the nearest.
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frsqrt_rn(float x) { return (float)(1.0 / sqrt((double)x)); }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline double __dadd_rn(double x, double y) { return x + y; }
inline double __dsub_rn(double x, double y) { return x - y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline double __ddiv_rn(double x, double y) { return x / y; }
inline double __dsqrt_rn(double x) { return sqrt(x); }
inline double __fma_rn(double x, double y, double z) { return fma(x, y, z); }

// Of two numbers of one type, or of the type that both become.
#define SMALLER_AND_LARGER(TYPE)                                  \
    inline TYPE min(TYPE x, TYPE y) { return x < y ? x : y; }     \
    inline TYPE max(TYPE x, TYPE y) { return x > y ? x : y; }
SMALLER_AND_LARGER(int)
SMALLER_AND_LARGER(unsigned)
SMALLER_AND_LARGER(long)
SMALLER_AND_LARGER(unsigned long)
SMALLER_AND_LARGER(long long)
SMALLER_AND_LARGER(unsigned long long)
#undef SMALLER_AND_LARGER
inline float min(float x, float y) { return fminf(x, y); }
inline float max(float x, float y) { return fmaxf(x, y); }
inline double min(double x, double y) { return fmin(x, y); }
inline double max(double x, double y) { return fmax(x, y); }
