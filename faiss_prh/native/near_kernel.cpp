// Compiled once for each SIMD level with PRH_LEVEL (a namespace) and PRH_LANES set.
#include "near.hpp"

#include "simd.hpp"

namespace prh {
namespace {

using V = VectorTypes<PRH_LANES>::Float;
using Word = VectorTypes<PRH_LANES>::Word;
constexpr int kRows = PRH_LANES == 16 ? 12 : 6;   // with two sums each, as many as the registers hold
static_assert(kStrip % kRows == 0 && kPanel % (2 * PRH_LANES) == 0, "a strip or a panel has a rest");

// Compares `Rows` vectors with the 2 · PRH_LANES vectors of a panel from `first` on.
template <int Rows>
inline NearPair* compare(std::int64_t d, int row, const float* rows, const float* row_squares, const float* row_most,
                          int first, const float* panel, const float* column_squares, const float* column_most,
                          NearPair* found) {
    V sums[Rows][2];
#pragma GCC unroll 12
    for (int r = 0; r < Rows; r++) sums[r][0] = sums[r][1] = V{};
    for (std::int64_t k = 0; k < d; k++) {
        const V left = load<V>(panel + k * kPanel + first), right = load<V>(panel + k * kPanel + first + PRH_LANES);
#pragma GCC unroll 12
        for (int r = 0; r < Rows; r++) {
            sums[r][0] += rows[r * d + k] * left;
            sums[r][1] += rows[r * d + k] * right;
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < Rows; r++)
        for (int half = 0; half < 2; half++) {
            const int column = first + half * PRH_LANES;
            const V distances = row_squares[r] + load<V>(column_squares + column) - 2.0f * sums[r][half];
            std::uint32_t mask = lane_mask((Word)(distances <= row_most[r]) |
                                           (Word)(distances <= load<V>(column_most + column)));
            if (!mask) continue;
            float each[PRH_LANES];
            store(each, distances);
            for (; mask; mask &= mask - 1) {
                const int lane = __builtin_ctz(mask);
                *found++ = {row + r, column + lane, each[lane]};
            }
        }
    return found;
}

std::int64_t candidates(std::int64_t d, std::int64_t n_rows, const float* rows, const float* row_squares,
                        const float* row_most, const float* panel, const float* column_squares, const float* column_most,
                        NearPair* found) {
    NearPair* const begin = found;
    for (int first = 0; first < kPanel; first += 2 * PRH_LANES) {
        int row = 0;
        for (; row + kRows <= n_rows; row += kRows)
            found = compare<kRows>(d, row, rows + row * d, row_squares + row, row_most + row, first, panel,
                                   column_squares, column_most, found);
        for (; row < n_rows; row++)
            found = compare<1>(d, row, rows + row * d, row_squares + row, row_most + row, first, panel, column_squares,
                               column_most, found);
    }
    return found - begin;
}

std::int64_t within(const float* products, const float* norms, float own, float most, std::int64_t n,
                    std::int32_t* places) {
    std::int64_t found = 0, at = 0;
    for (; at + PRH_LANES <= n; at += PRH_LANES) {
        const V distance = own + load<V>(norms + at) - 2.0f * load<V>(products + at);
        std::uint32_t mask = lane_mask((Word)(distance <= most));
        for (; mask; mask &= mask - 1) places[found++] = static_cast<std::int32_t>(at) + __builtin_ctz(mask);
    }
    for (; at < n; at++)
        if (own + norms[at] - 2.0f * products[at] <= most) places[found++] = static_cast<std::int32_t>(at);
    return found;
}

}  // namespace

namespace PRH_LEVEL {
extern const NearKernel near_kernel = {candidates, within};
}

}  // namespace prh
