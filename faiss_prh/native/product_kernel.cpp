// Compiled once for each SIMD level with PRH_LEVEL (a namespace) and PRH_LANES set.
#include "products.hpp"

#include "simd.hpp"

namespace prh {
namespace {

constexpr int kLanes = PRH_LANES / 2;
typedef double V __attribute__((vector_size(kLanes * sizeof(double))));
constexpr int kVectors = kGroup / kLanes;              // of a group's row
constexpr int kRows = PRH_LANES == 16 ? 8 : PRH_LANES == 8 ? 4 : 2;   // sums that the registers hold, with kGroups
constexpr int kGroups = PRH_LANES == 16 ? kMostGroups : 1;

inline V load_doubles(const double* from) {
    V v;
    __builtin_memcpy(&v, from, sizeof v);
    return v;
}

// For `Groups` groups of `right` and kRows columns of `left`, from `left` on.
template <int Groups>
inline void add_part(std::int64_t n, const double* left, const double* right, double* c, std::int64_t stride) {
    V sums[kRows][Groups * kVectors] = {};
    for (std::int64_t row = 0; row < n; row++) {
        V values[Groups * kVectors];
#pragma GCC unroll 4
        for (int v = 0; v < Groups * kVectors; v++)
            values[v] = load_doubles(right + (v / kVectors * n + row) * kGroup + v % kVectors * kLanes);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; r++)
#pragma GCC unroll 4
            for (int v = 0; v < Groups * kVectors; v++) sums[r][v] += left[row * kGroup + r] * values[v];
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < Groups * kVectors; v++) {
            double* const to = c + r * stride + v * kLanes;
            const V sum = load_doubles(to) + sums[r][v];
            __builtin_memcpy(to, &sum, sizeof sum);
        }
}

void add(std::int64_t n, const double* left, const double* right, int n_groups, double* c, std::int64_t stride) {
    for (int r = 0; r < kGroup; r += kRows) {
        int g = 0;
        for (; g + kGroups <= n_groups; g += kGroups)
            add_part<kGroups>(n, left + r, right + g * n * kGroup, c + r * stride + g * kGroup, stride);
        for (; g < n_groups; g++) add_part<1>(n, left + r, right + g * n * kGroup, c + r * stride + g * kGroup, stride);
    }
}

}  // namespace

namespace PRH_LEVEL {
extern const ProductKernel product_kernel = {add};
}

}  // namespace prh
