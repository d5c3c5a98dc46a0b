// The k-th of many values. Included by scan.cpp, so that there is one for each SIMD level.
#pragma once

#include <cstdint>

namespace prh {
namespace {

// The bits of a float, so that the order of integers is that of floats; of such an integer, the float's.
inline std::int32_t in_order(std::int32_t bits) {
    return bits ^ (bits >> 31 & 0x7fffffff);
}
inline std::int32_t as_ordered(float value) {
    std::int32_t bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    return in_order(bits);
}
inline float from_ordered(std::int32_t key) {
    float value;
    key = in_order(key);
    __builtin_memcpy(&value, &key, sizeof value);
    return value;
}

// By halving what it may be: ten times over all values, eight or sixteen at a time, take less time than sorting, in which half
// of the comparisons turn out as the processor did not foresee.
float kth(std::int64_t n, const float* values, std::int64_t k) {
    float least = values[0], most = values[0];
    for (std::int64_t i = 0; i < n; i++) {
        least = values[i] < least ? values[i] : least;
        most = values[i] > most ? values[i] : most;
    }
    // The k-th is above the one and not above the other.
    std::int64_t below = std::int64_t{as_ordered(least)} - 1, above = as_ordered(most);
    while (above - below > 1) {
        const std::int64_t middle = below + (above - below) / 2;
        const float bound = from_ordered(static_cast<std::int32_t>(middle));
        std::int32_t count = 0;
        for (std::int64_t i = 0; i < n; i++) count += values[i] <= bound;
        if (count == k) return bound;
        const bool is_enough = count > k;
        above = is_enough ? middle : above;
        below = is_enough ? below : middle;
    }
    return from_ordered(static_cast<std::int32_t>(above));
}

}  // namespace
}  // namespace prh
