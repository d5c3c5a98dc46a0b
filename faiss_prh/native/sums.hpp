// Sums over the values of vectors: products and distances. Included by scan.cpp, so that there is one for each SIMD level.
#pragma once

#include "scan.hpp"
#include "simd.hpp"
#if PRH_LANES == 16
#include "scan_avx512.hpp"
#endif

namespace prh {
namespace {

using Float = VectorTypes<PRH_LANES>::Float;

#if PRH_LANES < 16
inline float sum_of_lanes(VectorTypes<4>::Float v) {
    return (v[0] + v[2]) + (v[1] + v[3]);
}
#endif

#if PRH_LANES == 8
inline float sum_of_lanes(VectorTypes<8>::Float v) {
    return sum_of_lanes(VectorTypes<4>::Float(_mm256_castps256_ps128(v) + _mm256_extractf128_ps(v, 1)));
}
#endif

// The sum of term(a, b) over all values.
template <class Term>
inline float sum_of(std::int64_t d, const float* a, const float* b, const Term& term) {
    constexpr int kChains = 4;   // of additions, which would wait for each other
    Float sums[kChains] = {};
    std::int64_t i = 0;
    for (; i + kChains * PRH_LANES <= d; i += kChains * PRH_LANES)
        for (int chain = 0; chain < kChains; chain++)
            sums[chain] += term(load<Float>(a + i + chain * PRH_LANES), load<Float>(b + i + chain * PRH_LANES));
    float total = sum_of_lanes((sums[0] + sums[1]) + (sums[2] + sums[3]));
    for (; i < d; i++) total += term(a[i], b[i]);
    return total;
}

float dot(std::int64_t d, const float* a, const float* b) {
    return sum_of(d, a, b, [](auto x, auto y) { return x * y; });
}

float square_distance(std::int64_t d, const float* a, const float* b) {
    return sum_of(d, a, b, [](auto x, auto y) { return (x - y) * (x - y); });
}

#if PRH_LANES == 8
inline void sums_of_four(const Float (&v)[4], float* sums) {
    const __m256 quarters = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
    _mm_storeu_ps(sums, _mm256_castps256_ps128(quarters) + _mm256_extractf128_ps(quarters, 1));
}
#elif PRH_LANES < 8
inline void sums_of_four(const Float (&v)[4], float* sums) {
    for (int i = 0; i < 4; i++) sums[i] = sum_of_lanes(v[i]);
}
#endif

// The products of few vectors with others. Some by four at a time, so that what is loaded is used more than once.
void products_of_few(std::int64_t d, std::int64_t n, const float* a, std::int64_t n_others, const float* b, float* products) {
    constexpr int kRows = PRH_LANES == 16 ? 4 : 2, kColumns = 4;   // as many as there are registers for
    const std::int64_t n_whole = n / kRows * kRows, n_others_whole = n_others / kColumns * kColumns;
    for (std::int64_t j = 0; j < n_others_whole; j += kColumns)
        for (std::int64_t i = 0; i < n_whole; i += kRows) {
            Float sums[kRows][kColumns];
#pragma GCC unroll 4
            for (int row = 0; row < kRows; row++)
#pragma GCC unroll 4
                for (int column = 0; column < kColumns; column++) sums[row][column] = Float{};   // no call of memset
            std::int64_t at = 0;
            for (; at + PRH_LANES <= d; at += PRH_LANES)
#pragma GCC unroll 4
                for (int row = 0; row < kRows; row++) {
                    const Float own = load<Float>(a + (i + row) * d + at);
#pragma GCC unroll 4
                    for (int column = 0; column < kColumns; column++)
                        sums[row][column] += own * load<Float>(b + (j + column) * d + at);
                }
            for (int row = 0; row < kRows; row++) {
                float* const totals = products + (i + row) * n_others + j;
                sums_of_four(sums[row], totals);
                for (int column = 0; column < kColumns; column++)
                    for (std::int64_t rest = at; rest < d; rest++)
                        totals[column] += a[(i + row) * d + rest] * b[(j + column) * d + rest];
            }
        }
    for (std::int64_t i = 0; i < n; i++)
        for (std::int64_t j = i < n_whole ? n_others_whole : 0; j < n_others; j++)
            products[i * n_others + j] = dot(d, a + i * d, b + j * d);
}

// Turns `rows` rows of `columns` values, both multiples of 4, into columns. From one row to the next there are as many values
// as the strides say.
inline void transpose(int rows, int columns, const float* from, std::int64_t stride, float* to, std::int64_t to_stride) {
    for (int row = 0; row < rows; row += 4)
        for (int column = 0; column < columns; column += 4) {
            Float4 four[4];
            for (int r = 0; r < 4; r++) four[r] = load<Float4>(from + (row + r) * stride + column);
            transpose_fours(four);
            for (int r = 0; r < 4; r++) store(to + (column + r) * to_stride + row, four[r]);
        }
}

// The products of PRH_LANES vectors with N others, those of an other side by side; `turned` has the same value of each vector
// side by side, so that no lanes need adding up.
template <int N>
inline void products_of_lanes(std::int64_t d, const float* turned, const float* others, float* products) {
    Float sums[N];
#pragma GCC unroll 8
    for (int other = 0; other < N; other++) sums[other] = Float{};
    for (std::int64_t at = 0; at < d; at++) {
        const Float own = load<Float>(turned + at * PRH_LANES);
#pragma GCC unroll 8
        for (int other = 0; other < N; other++) sums[other] += own * others[other * d + at];
    }
    for (int other = 0; other < N; other++) store(products + other * PRH_LANES, sums[other]);
}

// Equal others get equal products: none of them is added up in another order.
void products(std::int64_t d, std::int64_t n, const float* a, std::int64_t n_others, const float* b, float* products,
              float* scratch) {
    constexpr int kColumns = 8;   // sums in registers, enough that none waits for another
    const std::int64_t d_fours = d / 4 * 4, n_others_whole = n_others / kColumns * kColumns;
    float totals[kColumns * PRH_LANES];
    std::int64_t i = 0;
    for (; i + PRH_LANES <= n; i += PRH_LANES, a += PRH_LANES * d, products += PRH_LANES * n_others) {
        transpose(PRH_LANES, static_cast<int>(d_fours), a, d, scratch, PRH_LANES);
        for (std::int64_t at = d_fours; at < d; at++)
            for (int row = 0; row < PRH_LANES; row++) scratch[at * PRH_LANES + row] = a[row * d + at];
        for (std::int64_t j = 0; j < n_others_whole; j += kColumns) {
            products_of_lanes<kColumns>(d, scratch, b + j * d, totals);
            transpose(kColumns, PRH_LANES, totals, PRH_LANES, products + j, n_others);
        }
        for (std::int64_t j = n_others_whole; j < n_others; j++) {
            products_of_lanes<1>(d, scratch, b + j * d, totals);
            for (int row = 0; row < PRH_LANES; row++) products[row * n_others + j] = totals[row];
        }
    }
    products_of_few(d, n - i, a, n_others, b, products);
}

}  // namespace
}  // namespace prh
