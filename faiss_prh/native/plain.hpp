// Plans without rotations, before and after a dense matrix: vector by vector. Included once for each SIMD level, by
// kernel.cpp.
#pragma once

#include "kernel.hpp"
#include "simd.hpp"

namespace prh {
namespace {

// Calls work(first, values) for the centred values of a vector, a register at a time; the last may be filled up with
// zeros, and `first` is then still that of the first. Gives the sum of the squares of the vector.
template <class V, class Work>
inline float for_centred(const Plan& plan, const float* x, Work work) {
    constexpr int L = lanes<V>;
    V squares = {};
    int i = 0;
    for (; i + L <= plan.d_in; i += L) {
        const V values = load<V>(x + i);
        squares += values * values;
        work(i, values - load<V>(plan.centre + i));
    }
    if (i < plan.d_in) {
        V values = {}, centre = {};
        __builtin_memcpy(&values, x + i, (plan.d_in - i) * sizeof(float));
        __builtin_memcpy(&centre, plan.centre + i, (plan.d_in - i) * sizeof(float));
        squares += values * values;
        work(i, values - centre);
    }
    float total = 0;
    for (int lane = 0; lane < L; lane++) total += squares[lane];
    return total;
}

// Gives the sum of squares.
template <class V>
float apply_plain(const Plan& plan, const float* x, float* y) {
    return for_centred<V>(plan, x, [&](int i, V values) {
        const int left = plan.d_out - i;
        if (left >= lanes<V>) {
            store(y + i, values + load<V>(plan.output_offset + i));
        } else {
            for (int k = 0; k < left; k++) y[i + k] = values[k] + plan.output_offset[i + k];
        }
    });
}

// Gives the sum of squares.
template <class V>
float encode_plain(const Plan& plan, const float* x, std::uint8_t* code) {
    using Word = typename VectorTypes<lanes<V>>::Word;
    std::uint32_t bits = 0;
    return for_centred<V>(plan, x, [&](int i, V values) {
        std::uint32_t some = lane_mask((Word)(values >= 0));
        if (plan.d_out - i < lanes<V>) some &= (1u << (plan.d_out - i)) - 1;
        bits = i % 8 ? bits | some << i % 8 : some;
        code[i / 8] = static_cast<std::uint8_t>(bits);
    });
}

}  // namespace
}  // namespace prh
