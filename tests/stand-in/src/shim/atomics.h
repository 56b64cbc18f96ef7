// Atomics: plain, since one thread runs at a time. Each gives what was there before.
#pragma once

namespace cpu {
template <class Value>
struct Itself {
    typedef Value type;
};
}  // namespace cpu

// The types that GPUs have each for; a value of another type is converted, as by their overloads.
#define ATOMIC(NAME, RESULT, ...)                                                              \
    template <class Value>                                                                     \
    inline Value NAME(Value* place, typename cpu::Itself<Value>::type value) {                 \
        static_assert(cpu::is_one_of<Value, __VA_ARGS__>(), "GPUs have no " #NAME " of this type"); \
        Value old = *place;                                                                    \
        *place = RESULT;                                                                       \
        return old;                                                                            \
    }

namespace cpu {
template <class Value, class... Known>
constexpr bool is_one_of() {
    return (std::is_same<Value, Known>::value || ...);
}
}  // namespace cpu

ATOMIC(atomicAdd, old + value, int, unsigned, unsigned long long, float, double)
ATOMIC(atomicSub, old - value, int, unsigned)
ATOMIC(atomicMax, value > old ? value : old, int, unsigned, long long, unsigned long long)
ATOMIC(atomicMin, value < old ? value : old, int, unsigned, long long, unsigned long long)
ATOMIC(atomicAnd, old & value, int, unsigned, unsigned long long)
ATOMIC(atomicOr, old | value, int, unsigned, unsigned long long)
ATOMIC(atomicXor, old ^ value, int, unsigned, unsigned long long)
ATOMIC(atomicExch, value, int, unsigned, unsigned long long, float)
ATOMIC(atomicInc, old >= value ? 0u : old + 1u, unsigned)
ATOMIC(atomicDec, old == 0u || old > value ? value : old - 1u, unsigned)
#undef ATOMIC

template <class Value>
inline Value atomicCAS(Value* place, typename cpu::Itself<Value>::type expected,
                       typename cpu::Itself<Value>::type value) {
    static_assert(cpu::is_one_of<Value, int, unsigned, unsigned long long, unsigned short>(), "GPUs have no atomicCAS of this type");
    Value old = *place;
    if (old == expected) {
        *place = value;
    }
    return old;
}
