// What learning angles together needs, compiled once for each SIMD level. Every level adds up in the same order and fuses
// nothing, so that all of them learn the same.
#pragma once

#include <cstdint>

#include "kernel.hpp"

namespace prh {

// Rotations in the order in which they are applied.
struct Turns {
    std::int64_t count;
    const std::int32_t *i, *j;
    const float *cosine, *sine;
};

// Soft signs of m vectors, cut into slabs of up to 64 dimensions, each of which holds those of all vectors: looking up
// vectors at random then stays in the second-level cache. Slab after slab, of 64, and the rest of 32 and 16 dimensions.
constexpr std::int64_t kWidestSlab = 64, kNarrowestSlab = 16;

constexpr std::int64_t padded(std::int64_t n) {
    return (n + kNarrowestSlab - 1) / kNarrowestSlab * kNarrowestSlab;
}

// The width of the slab that begins at a dimension.
constexpr std::int64_t slab_width(std::int64_t n, std::int64_t first) {
    const std::int64_t left = padded(n) - first;
    return left >= 64 ? 64 : left >= 32 ? 32 : 16;
}

// Pairs of vectors: vector v with partners[v * k] .. partners[v * k + k]. Those that have v as their partner are the pairs
// incident[ends[v - 1]] .. incident[ends[v]], each the number of a place in `partners`; they are those of vectors `owners`.
struct Partners {
    std::int64_t m, k;
    const std::int32_t* partners;
    const std::int64_t* ends;
    const std::int32_t *incident, *owners;
};

// A tile has n rows of 16 vectors.
struct TileKernel {
    // Turns x into y.
    void (*turn)(const Turns& turns, std::int64_t n, const float* x, float* y);
    // Undoes the turns on the values y and the slopes g of a tile; adds the slopes of angles to 8 sums for each.
    void (*slopes)(const Turns& turns, float* y, float* g, float* sums);
    // The product of a matrix of n rows and columns and a tile.
    void (*multiply)(std::int64_t n, const float* matrix, const float* x, float* y);
    // The products of each row of tiles g and each row of tiles x. `room` is for n + 16 rows of them.
    void (*outer)(std::int64_t n, std::int64_t n_tiles, const float* g, const float* x, float* room, double* found);
};

struct JointKernel {
    // Rotates two rows of m values.
    void (*rows_rotate)(float* a, float* b, std::int64_t m, float cosine, float sine);
    // Writes `magnitude` with the signs of a tile. Gives the sum of |y|.
    double (*signs)(std::int64_t n, const float* y, float magnitude, float* g);
    // Writes the soft signs of a tile, the vectors from `first` on. Gives the sum of |y|.
    double (*soft_signs)(std::int64_t n, std::int64_t m, std::int64_t first, const float* y, float scale, float* signs);
    // For the vectors begin .. end and dimensions from `first` on, a slab: the products of the soft signs of partners.
    void (*products)(std::int64_t n, std::int64_t first, const float* signs, const Partners& partners,
                     std::int64_t begin, std::int64_t end, float* products);
    // The slopes of one slab and the 16 vectors of a tile: of products, by their weights, and of |y|.
    void (*sign_slopes)(std::int64_t n, std::int64_t first, const float* signs, const Partners& partners,
                        const float* weights, float scale, float magnitude, std::int64_t begin, const float* y,
                        float* g);
};

namespace baseline {
extern const TileKernel tile_kernel;
extern const JointKernel joint_kernel;
}
#ifdef PRH_HAVE_AVX2
namespace avx2 {
extern const TileKernel tile_kernel;
extern const JointKernel joint_kernel;
}
#endif
#ifdef PRH_HAVE_AVX512
namespace avx512 {
extern const TileKernel tile_kernel;
}
#endif

}  // namespace prh
