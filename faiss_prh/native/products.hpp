// Products of matrices in double precision. Sums run along the rows of packed matrices, in the order of the rows.
#pragma once

#include <cstdint>

namespace prh {

constexpr int kGroup = 8;      // columns of a packed matrix that stand together, row by row
constexpr int kMostGroups = 3; // groups of columns that a kernel takes at a time

struct ProductKernel {
    // Adds to c[r · stride + k], for each column r of the group `left` and each column k of up to kMostGroups groups that
    // follow each other in `right`, the sum of the products of the two columns over n rows.
    void (*add)(std::int64_t n, const double* left, const double* right, int n_groups, double* c, std::int64_t stride);
};

namespace baseline {
extern const ProductKernel product_kernel;
}
#ifdef PRH_HAVE_AVX2
namespace avx2 {
extern const ProductKernel product_kernel;
}
#endif
#ifdef PRH_HAVE_AVX512
namespace avx512 {
extern const ProductKernel product_kernel;
}
#endif

}  // namespace prh
