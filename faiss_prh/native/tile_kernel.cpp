// Compiled once for each SIMD level with PRH_LEVEL (a namespace) and PRH_LANES set, and without fused multiply-adds. A lane
// is a vector or a column, and never added to another but by eights: so every level gives the same.
#include "joint.hpp"

#include "simd.hpp"

namespace prh {
namespace {

using V = VectorTypes<PRH_LANES>::Float;
using Fours = VectorTypes<(PRH_LANES < 8 ? PRH_LANES : 8)>::Float;   // what transposes are for
constexpr int kRow = kTile / PRH_LANES;                              // vectors of a tile's row

// Adds the sums of the two halves of 16 products to 8 sums.
inline void add_halves(const V (&products)[kRow], float* sums) {
#if PRH_LANES == 16
    Fours lower, upper;
    __builtin_memcpy(&lower, &products[0], sizeof lower);
    __builtin_memcpy(&upper, reinterpret_cast<const char*>(&products[0]) + sizeof lower, sizeof upper);
    store(sums, load<Fours>(sums) + (lower + upper));
#else
    constexpr int kEight = 8 / PRH_LANES;
    for (int k = 0; k < kEight; k++) {
        float* const sum = sums + k * PRH_LANES;
        store(sum, load<V>(sum) + (products[k] + products[k + kEight]));
    }
#endif
}

void turn(const Turns& turns, std::int64_t n, const float* x, float* y) {
    __builtin_memcpy(y, x, n * kTile * sizeof(float));
    for (std::int64_t t = 0; t < turns.count; t++) {
        float *const a = y + turns.i[t] * kTile, *const b = y + turns.j[t] * kTile;
        const float cosine = turns.cosine[t], sine = turns.sine[t];
        for (int k = 0; k < kRow; k++) {
            const V u = load<V>(a + k * PRH_LANES), w = load<V>(b + k * PRH_LANES);
            store(a + k * PRH_LANES, cosine * u - sine * w);
            store(b + k * PRH_LANES, sine * u + cosine * w);
        }
    }
}

void slopes(const Turns& turns, float* y, float* g, float* sums) {
    for (std::int64_t t = turns.count; t-- > 0;) {
        const std::int64_t i = turns.i[t] * kTile, j = turns.j[t] * kTile;
        const float cosine = turns.cosine[t], sine = turns.sine[t];
        V products[kRow];
        for (int k = 0; k < kRow; k++) {
            const std::int64_t a = i + k * PRH_LANES, b = j + k * PRH_LANES;
            const V yi = load<V>(y + a), yj = load<V>(y + b), gi = load<V>(g + a), gj = load<V>(g + b);
            products[k] = gj * yi - gi * yj;
            store(y + a, cosine * yi + sine * yj);
            store(y + b, cosine * yj - sine * yi);
            store(g + a, cosine * gi + sine * gj);
            store(g + b, cosine * gj - sine * gi);
        }
        add_halves(products, sums + t * 8);
    }
}

template <int Rows>
void multiply_rows(std::int64_t n, const float* matrix, const float* x, float* y) {
    V sums[Rows][kRow] = {};
    for (std::int64_t c = 0; c < n; c++)
        for (int k = 0; k < kRow; k++) {
            const V values = load<V>(x + c * kTile + k * PRH_LANES);
            for (int r = 0; r < Rows; r++) sums[r][k] += matrix[r * n + c] * values;
        }
    for (int r = 0; r < Rows; r++)
        for (int k = 0; k < kRow; k++) store(y + r * kTile + k * PRH_LANES, sums[r][k]);
}

void multiply(std::int64_t n, const float* matrix, const float* x, float* y) {
    constexpr int kRows = 8 / kRow;   // sums that the registers hold
    std::int64_t r = 0;
    for (; r + kRows <= n; r += kRows) multiply_rows<kRows>(n, matrix + r * n, x, y + r * kTile);
    for (; r < n; r++) multiply_rows<1>(n, matrix + r * n, x, y + r * kTile);
}

// Rows `column` .. column + 16 of tiles as 16 columns, one line for each vector.
void as_panel(std::int64_t n, std::int64_t n_tiles, std::int64_t column, const float* x, float* panel) {
    for (std::int64_t tile = 0; tile < n_tiles; tile++, x += n * kTile, panel += kTile * kTile)
        for (int i = 0; i < kTile; i += 4)
            for (int k = 0; k < kTile; k += lanes<Fours>) {
                Fours r[4] = {};
                for (int row = 0; row < 4 && column + i + row < n; row++)
                    r[row] = load<Fours>(x + (column + i + row) * kTile + k);
                transpose_fours(r);
                for (int v = 0; v < 4; v++) {
                    float* const to = panel + (k + v) * kTile + i;
                    store_fours(to, to + 4 * kTile, r[v]);
                }
            }
}

// Rows of tiles, `Rows` of which stand together for all tiles: so far apart as in tiles, they drive each other out of the
// cache.
template <int Rows>
void as_strip(std::int64_t n, std::int64_t n_tiles, const float* g, float* strip) {
    for (std::int64_t tile = 0; tile < n_tiles; tile++)
        __builtin_memcpy(strip + tile * Rows * kTile, g + tile * n * kTile, Rows * kTile * sizeof(float));
}

template <int Rows>
void outer_rows(std::int64_t n, std::int64_t n_tiles, const float* strip, const float* panel, std::int64_t columns,
                double* found) {
    V sums[Rows][kRow] = {};
    for (std::int64_t tile = 0; tile < n_tiles; tile++, strip += Rows * kTile)
        for (int v = 0; v < kTile; v++, panel += kTile) {
            V values[kRow];
            for (int k = 0; k < kRow; k++) values[k] = load<V>(panel + k * PRH_LANES);
            for (int r = 0; r < Rows; r++)
                for (int k = 0; k < kRow; k++) sums[r][k] += strip[r * kTile + v] * values[k];
        }
    for (int r = 0; r < Rows; r++) {
        float row[kTile];
        __builtin_memcpy(row, sums[r], sizeof row);
        for (std::int64_t c = 0; c < columns; c++) found[r * n + c] = row[c];
    }
}

void outer(std::int64_t n, std::int64_t n_tiles, const float* g, const float* x, float* room, double* found) {
    constexpr int kRows = 8 / kRow;   // sums that the registers hold
    float *const strips = room, *const panel = room + n * n_tiles * kTile;
    const auto strip = [&](std::int64_t r) { return strips + r * n_tiles * kTile; };
    const std::int64_t n_whole = n / kRows * kRows;
    for (std::int64_t r = 0; r < n_whole; r += kRows) as_strip<kRows>(n, n_tiles, g + r * kTile, strip(r));
    for (std::int64_t r = n_whole; r < n; r++) as_strip<1>(n, n_tiles, g + r * kTile, strip(r));
    for (std::int64_t column = 0; column < n; column += kTile) {
        as_panel(n, n_tiles, column, x, panel);
        const std::int64_t columns = n - column < kTile ? n - column : kTile;
        for (std::int64_t r = 0; r < n_whole; r += kRows)
            outer_rows<kRows>(n, n_tiles, strip(r), panel, columns, found + r * n + column);
        for (std::int64_t r = n_whole; r < n; r++)
            outer_rows<1>(n, n_tiles, strip(r), panel, columns, found + r * n + column);
    }
}

}  // namespace

namespace PRH_LEVEL {
extern const TileKernel tile_kernel = {turn, slopes, multiply, outer};
}

}  // namespace prh
