// Compiled once for each SIMD level with PRH_LEVEL (a namespace) and PRH_LANES set, and without fused multiply-adds.
#include "joint.hpp"

#include "simd.hpp"

namespace prh {
namespace {

using V = VectorTypes<PRH_LANES>::Float;
using Word = VectorTypes<PRH_LANES>::Word;
constexpr int kRow = kTile / PRH_LANES;   // vectors of a tile's row
constexpr int kEight = 8 / PRH_LANES;     // vectors of eight sums

inline V all(float value) {
    return V{} + value;
}

inline Float4 fold(const V (&sums)[kEight]) {
#if PRH_LANES == 8
    return Float4(_mm256_castps256_ps128(sums[0])) + Float4(_mm256_extractf128_ps(sums[0], 1));
#else
    return sums[0] + sums[1];
#endif
}

inline double total(const V (&sums)[kEight]) {
    const Float4 four = fold(sums);
    return (static_cast<double>(four[0]) + four[1]) + (static_cast<double>(four[2]) + four[3]);
}

void rows_rotate(float* __restrict a, float* __restrict b, std::int64_t m, float cosine, float sine) {
    for (std::int64_t k = 0; k < m; k++) {
        const float x = a[k], y = b[k];
        a[k] = cosine * x - sine * y;
        b[k] = sine * x + cosine * y;
    }
}

inline V absolute(V x) {
    return (V)((Word)x & 0x7fffffffu);
}

double signs(std::int64_t n, const float* y, float magnitude, float* g) {
    V magnitudes[kEight] = {};
    for (std::int64_t k = 0; k < n * kRow; k++) {
        const V value = load<V>(y + k * PRH_LANES);
        magnitudes[k % kEight] += absolute(value);
        store(g + k * PRH_LANES, (V)((Word)all(magnitude) | ((Word)value & 0x80000000u)));
    }
    return total(magnitudes);
}

// The hyperbolic tangent, from e = 2^t for t = -2 |x| / log 2: (1 - e) / (1 + e).
inline V soft_sign(V x) {
    const V raw = absolute(x) * -2.885390082f, least = all(-125.0f);
    const Word is_more = (Word)(raw > least);
    const V t = (V)(((Word)raw & is_more) | ((Word)least & ~is_more));
    const V shifted = t + 0x1.8p23f;   // its last bits are the whole part of t
    const V u = (t - (shifted - 0x1.8p23f)) * 0.6931471806f;
    V power = all(1 / 5040.0f);
    const float terms[] = {1 / 720.0f, 1 / 120.0f, 1 / 24.0f, 1 / 6.0f, 0.5f, 1.0f, 1.0f};
    for (const float term : terms) power = power * u + term;
    const V e = (V)((Word)power + ((Word)shifted << 23));
    return (V)((Word)((1.0f - e) / (1.0f + e)) | ((Word)x & 0x80000000u));
}

double soft_signs(std::int64_t n, std::int64_t m, std::int64_t first, const float* y, float scale, float* signs) {
    const std::int64_t count = m - first < kTile ? m - first : kTile;
    V magnitudes[kEight] = {};
    for (std::int64_t slab = 0, width; slab < n; slab += width) {
        width = slab_width(n, slab);
        for (std::int64_t i = 0; i < width && slab + i < n; i += 4) {
            const std::int64_t rows = n - slab - i < 4 ? n - slab - i : 4;
            float* const to = signs + slab * m + first * width + i;
            for (int k = 0; k < kRow; k++) {
                V r[4] = {};
                for (int row = 0; row < rows; row++) {
                    const V value = load<V>(y + (slab + i + row) * kTile + k * PRH_LANES);
                    magnitudes[k % kEight] += absolute(value);
                    r[row] = soft_sign(value * scale);
                }
                transpose_fours(r);
                for (int v = 0; v < 4; v++) {
                    const int lower = k * PRH_LANES + v;
                    if (lower + PRH_LANES - 4 < count)
                        store_fours(to + lower * width, to + (lower + 4) * width, r[v]);
                    else if (lower < count)
                        __builtin_memcpy(to + lower * width, &r[v], 4 * sizeof(float));
                }
            }
        }
    }
    return total(magnitudes);
}

// Asks for a vector's signs a while before they are needed: they come from anywhere in the slab.
template <int W>
inline void prefetch(const float* signs, std::int64_t v) {
    for (int i = 0; i < W; i += 16) __builtin_prefetch(signs + v * W + i);
}

template <int W>
void products_of(const float* signs, const Partners& all_partners, std::int64_t begin, std::int64_t end, float* products) {
    constexpr int n = W / PRH_LANES;
    const std::int64_t k = all_partners.k;
    for (std::int64_t v = begin; v < end; v++) {
        V own[n];
        for (int p = 0; p < n; p++) own[p] = load<V>(signs + v * W + p * PRH_LANES);
        const std::int32_t* const partners = all_partners.partners + v * k;
        for (std::int64_t c = 0; c < k && v + 1 < end; c++) prefetch<W>(signs, partners[k + c]);
        for (std::int64_t c = 0; c < k; c += 4) {
            Float4 four[4] = {};
            const int count = k - c < 4 ? static_cast<int>(k - c) : 4;
            for (int q = 0; q < count; q++) {
                const float* const other = signs + static_cast<std::int64_t>(partners[c + q]) * W;
                V sums[kEight] = {};
                for (int p = 0; p < n; p++) sums[p % kEight] += own[p] * load<V>(other + p * PRH_LANES);
                four[q] = fold(sums);
            }
            transpose_fours(four);
            const Float4 found = (four[0] + four[1]) + (four[2] + four[3]);
            __builtin_memcpy(products + v * k + c, &found, count * sizeof(float));
        }
    }
}

template <int W>
void sign_slopes_of(std::int64_t rows, const float* signs, const Partners& all_partners, const float* weights,
                    float scale, float magnitude, std::int64_t begin, const float* y, float* g) {
    constexpr int n = W / PRH_LANES;
    const std::int64_t k = all_partners.k;
    const std::int64_t count = all_partners.m - begin < kTile ? all_partners.m - begin : kTile;
    float found[kTile * W];
    __builtin_memset(found + count * W, 0, (kTile - count) * W * sizeof(float));
    for (std::int64_t v = begin; v < begin + count; v++) {
        V sums[n] = {};
        const auto add = [&](std::int64_t other, float weight) {
            for (int p = 0; p < n; p++) sums[p] += weight * load<V>(signs + other * W + p * PRH_LANES);
        };
        if (v + 1 < begin + count) {
            for (std::int64_t c = (v + 1) * k; c < (v + 2) * k; c++) prefetch<W>(signs, all_partners.partners[c]);
            for (std::int64_t at = all_partners.ends[v]; at < all_partners.ends[v + 1]; at++)
                prefetch<W>(signs, all_partners.owners[at]);
        }
        for (std::int64_t c = v * k; c < (v + 1) * k; c++) add(all_partners.partners[c], weights[c]);
        for (std::int64_t at = v == 0 ? 0 : all_partners.ends[v - 1]; at < all_partners.ends[v]; at++)
            add(all_partners.owners[at], weights[all_partners.incident[at]]);
        for (int p = 0; p < n; p++) {
            const V sign = load<V>(signs + v * W + p * PRH_LANES);
            store(found + (v - begin) * W + p * PRH_LANES, sums[p] * ((1.0f - sign * sign) * scale));
        }
    }
    for (int i = 0; i < W && i < rows; i += 4)
        for (int part = 0; part < kRow; part++) {
            V r[4];
            for (int v = 0; v < 4; v++) {
                const float* const from = found + (part * PRH_LANES + v) * W + i;
                r[v] = load_fours<V>(from, from + 4 * W);
            }
            transpose_fours(r);
            for (int row = 0; row < 4 && i + row < rows; row++) {
                const std::int64_t at = (i + row) * kTile + part * PRH_LANES;
                const V value = load<V>(y + at);
                const V sign = (V)(((Word)all(magnitude) ^ ((Word)value & 0x80000000u)) & (Word)(value != 0));
                store(g + at, r[row] + sign);
            }
        }
}

void products(std::int64_t n, std::int64_t first, const float* signs, const Partners& partners, std::int64_t begin,
              std::int64_t end, float* found) {
    const std::int64_t width = slab_width(n, first);
    (width == 64 ? products_of<64> : width == 32 ? products_of<32> : products_of<16>)(
        signs + first * partners.m, partners, begin, end, found);
}

void sign_slopes(std::int64_t n, std::int64_t first, const float* signs, const Partners& partners, const float* weights,
                 float scale, float magnitude, std::int64_t begin, const float* y, float* g) {
    const std::int64_t width = slab_width(n, first);
    (width == 64 ? sign_slopes_of<64> : width == 32 ? sign_slopes_of<32> : sign_slopes_of<16>)(
        n - first, signs + first * partners.m, partners, weights, scale, magnitude, begin, y, g);
}

}  // namespace

namespace PRH_LEVEL {
extern const JointKernel joint_kernel = {rows_rotate, signs, soft_signs, products, sign_slopes};
}

}  // namespace prh
