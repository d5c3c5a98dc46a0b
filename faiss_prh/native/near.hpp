// Finding near vectors of whole numbers, whose products are exact: in any order, fused or not.
#pragma once

#include <cstdint>

namespace prh {

constexpr int kStrip = 12;   // vectors that are compared with a panel at a time
constexpr int kPanel = 32;   // vectors of a panel, which has their first values side by side, then their second, …

struct NearPair {
    std::int32_t row, column;
    float distance;
};

struct NearKernel {
    // Compares up to kStrip vectors of d values, `rows`, with those of a panel. Writes those pairs whose distance is at most
    // what either of them has in `row_most` or `column_most`, and gives their number. Squares are those of vectors.
    std::int64_t (*candidates)(std::int64_t d, std::int64_t n_rows, const float* rows, const float* row_squares,
                               const float* row_most, const float* panel, const float* column_squares,
                               const float* column_most, NearPair* found);
    // Writes the places of those of n distances, own + norms - 2 products, that are at most `most`. Gives how many.
    std::int64_t (*within)(const float* products, const float* norms, float own, float most, std::int64_t n,
                           std::int32_t* places);
};

namespace baseline {
extern const NearKernel near_kernel;
}
#ifdef PRH_HAVE_AVX2
namespace avx2 {
extern const NearKernel near_kernel;
}
#endif
#ifdef PRH_HAVE_AVX512
namespace avx512 {
extern const NearKernel near_kernel;
}
#endif

}  // namespace prh
