// What is compiled once for each SIMD level. Plain pointers only: a standard container used here could leave its
// inline functions in the library compiled for the wrong level.
#pragma once

#include <cstdint>

namespace prh {

// Vectors are worked on in tiles of up to 16: row r of a tile holds dimension r of each of its vectors.
constexpr int kTile = 16;

// 8 × the number of a row: an offset that the addressing modes of x86 scale to a row of 16 or of 8 floats.
using RowOffset = std::uint32_t;

constexpr RowOffset offset_of(std::int32_t row) {
    return static_cast<RowOffset>(row) * 8;
}

// An orthogonal transform made ready to run: centre, scale, rotate, pick the output rows. Of its n dimensions the input
// may be only the first ones, and the others zero; and not all need be in the output.
//
// A rotation is w += p·u, then u += q·w: two multiply-adds where cosine and sine would need four operations. What that
// leaves out, a factor for each row, is collected from all layers and multiplied into `scale`, once a dimension.
//
// The pairs of two consecutive layers form even cycles: first layer, second layer, first layer, … Walking a cycle
// applies both layers with one load and one store of each row. A rotation may also stand alone.
struct Plan {
    int n, d_in, d_out;
    const float* centre;   // subtracted from the input
    const float* scale;

    std::int64_t n_walks;
    const RowOffset* rows;        // for each walk: the number of its pairs less one (0: a rotation alone), then their u, w
    const float* coefficients;    // for each pair: p, q of its own rotation, p, q of w and the next pair's u

    const std::int32_t* output_rows;   // where output dimension k is found
    const float* output_offset;        // added to the output
    bool is_plain;                     // no rotations, and all dimensions in their places: no need for tiles
};

// A dense matrix made ready for products: its rows in blocks of 16 (the last one filled up with zeros), and in a block the
// 16 values of a column side by side.
struct Matrix {
    int d_in, d_out;
    const float* values;
};
constexpr int kRowBlock = 16;
constexpr int kMostMultiplied = 48;

struct Kernel {
    // Both give the first vector that is not finite or too large, or -1. `encode` may stop there, `apply` does not. `norms`
    // of the outputs may be null. `tile` holds tile_floats(n) floats, 64-byte aligned.
    std::int64_t (*encode)(const Plan& plan, std::int64_t n, const float* x, std::uint8_t* codes, float* norms,
                           float* tile);
    std::int64_t (*apply)(const Plan& plan, std::int64_t n, const float* x, float* y, float* tile);
    // y = matrix · x, for up to kMostMultiplied vectors.
    void (*multiply)(const Matrix& matrix, std::int64_t n, const float* x, float* y);
    std::int64_t (*first_unusable_row)(std::int64_t n, std::int64_t d, const float* x);

    void (*rows_fill)(float* rows, std::int64_t n_begin, std::int64_t n_end, std::int64_t n, std::int64_t m,
                        std::int64_t first, std::int64_t count, const float* x);
    double (*rows_centre)(float* row, std::int64_t m);
    double (*rows_covariance)(const float* a, const float* b, std::int64_t m);
};

// Two rows more than dimensions: the partners of dimensions that sit a layer out.
constexpr std::int64_t kSpareRows = 2;
constexpr std::int64_t tile_floats(std::int64_t n) {
    return (n + kSpareRows) * kTile;
}

namespace baseline {
extern const Kernel kernel;
}
#ifdef PRH_HAVE_AVX2
namespace avx2 {
extern const Kernel kernel;
}
#endif

}  // namespace prh
