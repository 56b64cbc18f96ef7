// Warps: what the lanes of a warp tell one another.
#pragma once

namespace cpu {

// What lane `from` of those that met gave; not a number if it was not there.
template <class Value>
inline Value given_by(unsigned from) {
    unsigned first = current / WARP_LANES * WARP_LANES;
    Value value;
    if (from < WARP_LANES && (met_lanes[current] >> from & 1) != 0) {
        memcpy(&value, &met_values[first + from], sizeof value);
    } else {
        memset(&value, FRESH, sizeof value);
    }
    return value;
}

template <class Value>
inline void offer(Wait wait, unsigned mask, Value value) {
    static_assert(sizeof(Value) <= sizeof(uint64_t), "lanes exchange at most 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    meet(wait, mask, bits);
}

inline unsigned lane() { return current % WARP_LANES; }

// Which of the lanes that met gave something other than 0.
inline unsigned votes(unsigned mask, int is_set) {
    offer(VOTE, mask, is_set != 0);
    unsigned all = 0;
    for (unsigned from = 0; from < WARP_LANES; from++) {
        if (met_lanes[current] >> from & 1) {
            all |= (unsigned)(given_by<int>(from) != 0) << from;
        }
    }
    return all;
}

// The first lane of this lane's part of the warp, where it is cut in parts of `width`.
inline unsigned part(int width) { return lane() / (unsigned)width * (unsigned)width; }

}  // namespace cpu

inline void __syncwarp(unsigned mask = ~0u) { cpu::meet(cpu::WARP, mask, 0); }
inline unsigned __activemask() { return ~0u; }

template <class Value>
inline Value __shfl_sync(unsigned mask, Value value, int from, int width = 32) {
    cpu::offer(cpu::SHUFFLE, mask, value);
    return cpu::given_by<Value>(cpu::part(width) + ((unsigned)from & (unsigned)(width - 1)));
}
template <class Value>
inline Value __shfl_xor_sync(unsigned mask, Value value, int lanes, int width = 32) {
    cpu::offer(cpu::SHUFFLE, mask, value);
    unsigned from = cpu::lane() ^ (unsigned)lanes;
    return from < cpu::part(width) + (unsigned)width ? cpu::given_by<Value>(from) : value;
}
template <class Value>
inline Value __shfl_down_sync(unsigned mask, Value value, unsigned lanes, int width = 32) {
    cpu::offer(cpu::SHUFFLE, mask, value);
    unsigned from = cpu::lane() + lanes;
    return from < cpu::part(width) + (unsigned)width ? cpu::given_by<Value>(from) : value;
}
template <class Value>
inline Value __shfl_up_sync(unsigned mask, Value value, unsigned lanes, int width = 32) {
    cpu::offer(cpu::SHUFFLE, mask, value);
    return cpu::lane() >= cpu::part(width) + lanes ? cpu::given_by<Value>(cpu::lane() - lanes) : value;
}

inline unsigned __ballot_sync(unsigned mask, int is_set) { return cpu::votes(mask, is_set); }
inline int __any_sync(unsigned mask, int is_set) { return cpu::votes(mask, is_set) != 0; }
inline int __all_sync(unsigned mask, int is_set) {
    unsigned votes = cpu::votes(mask, is_set);
    return votes == cpu::met_lanes[cpu::current];
}
template <class Value>
inline unsigned __match_any_sync(unsigned mask, Value value) {
    cpu::offer(cpu::MATCH, mask, value);
    unsigned alike = 0;
    for (unsigned from = 0; from < cpu::WARP_LANES; from++) {
        if (cpu::met_lanes[cpu::current] >> from & 1) {
            Value other = cpu::given_by<Value>(from);
            alike |= (unsigned)(memcmp(&other, &value, sizeof value) == 0) << from;
        }
    }
    return alike;
}

#define REDUCE_LANES(NAME, TYPE, FOLD)                                    \
    inline TYPE NAME(unsigned mask, TYPE value) {                         \
        cpu::offer(cpu::SHUFFLE, mask, value);                            \
        TYPE all = value;                                                 \
        for (unsigned from = 0; from < cpu::WARP_LANES; from++) {         \
            if (from != cpu::lane() && (cpu::met_lanes[cpu::current] >> from & 1)) { \
                TYPE other = cpu::given_by<TYPE>(from);                   \
                all = FOLD;                                               \
            }                                                             \
        }                                                                 \
        return all;                                                       \
    }
REDUCE_LANES(__reduce_add_sync, unsigned, all + other)
REDUCE_LANES(__reduce_add_sync, int, all + other)
REDUCE_LANES(__reduce_min_sync, unsigned, other < all ? other : all)
REDUCE_LANES(__reduce_min_sync, int, other < all ? other : all)
REDUCE_LANES(__reduce_max_sync, unsigned, other > all ? other : all)
REDUCE_LANES(__reduce_max_sync, int, other > all ? other : all)
REDUCE_LANES(__reduce_and_sync, unsigned, all & other)
REDUCE_LANES(__reduce_or_sync, unsigned, all | other)
REDUCE_LANES(__reduce_xor_sync, unsigned, all ^ other)
#undef REDUCE_LANES
