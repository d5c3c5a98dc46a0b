// What scan.cpp does in its own way where there is AVX-512 (F, BW, DQ, VL and VPOPCNTDQ). Masks take the place of tables, and
// of loops over what is left at an end: a masked load does not touch what its mask leaves out.
#pragma once

#include "scan.hpp"
#include "simd.hpp"

namespace prh {
namespace {

#ifdef PRH_EMULATE_AVX512
// SIMDe's masked loads read everything, and some versions have none: these read what the instruction reads.
template <class V, class T>
inline V masked_load(std::uint64_t mask, const T* from) {
    T values[sizeof(V) / sizeof(T)] = {};
    for (std::size_t lane = 0; lane < sizeof(V) / sizeof(T); lane++)
        if (mask >> lane & 1) values[lane] = from[lane];
    V v;
    __builtin_memcpy(&v, values, sizeof v);
    return v;
}
inline void masked_store(float* to, __mmask16 mask, __m512 v) {
    for (int lane = 0; lane < 16; lane++)
        if (mask >> lane & 1) to[lane] = v[lane];
}
inline __m512i masked_first(__mmask16 mask, __m512i v) {
    std::int32_t values[16], first[16] = {};
    __builtin_memcpy(values, &v, sizeof v);
    for (int lane = 0, n = 0; lane < 16; lane++)
        if (mask >> lane & 1) first[n++] = values[lane];
    __builtin_memcpy(&v, first, sizeof v);
    return v;
}
inline __m128i as_bytes(__m512i v) {
    std::int32_t values[16];
    std::uint8_t bytes[16];
    __builtin_memcpy(values, &v, sizeof v);
    for (int lane = 0; lane < 16; lane++) bytes[lane] = static_cast<std::uint8_t>(values[lane]);
    return masked_load<__m128i>(0xffff, bytes);
}
#else
template <class V, class T>
inline V masked_load(std::uint64_t mask, const T* from);
template <>
inline __m512i masked_load(std::uint64_t mask, const std::uint8_t* from) {
    return _mm512_maskz_loadu_epi8(mask, from);
}
template <>
inline __m256i masked_load(std::uint64_t mask, const std::uint8_t* from) {
    return _mm256_maskz_loadu_epi8(static_cast<__mmask32>(mask), from);
}
template <>
inline __m128i masked_load(std::uint64_t mask, const std::uint8_t* from) {
    return _mm_maskz_loadu_epi8(static_cast<__mmask16>(mask), from);
}
template <>
inline __m512 masked_load(std::uint64_t mask, const float* from) {
    return _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), from);
}
inline void masked_store(float* to, __mmask16 mask, __m512 v) {
    _mm512_mask_storeu_ps(to, mask, v);
}
inline __m512i masked_first(__mmask16 mask, __m512i v) {
    return _mm512_maskz_compress_epi32(mask, v);
}
inline __m128i as_bytes(__m512i v) {
    return _mm512_cvtepi32_epi8(v);
}
#endif

// Writes the lanes of a mask one after the other, and something behind them, sixteen in all; gives how many there are. A branch
// for each would be one that a processor cannot foresee, and a wrong guess takes as long as counting the bits of ten codes.
template <class T>
inline int write_some(std::uint32_t mask, __m512i v, T* to) {
    v = masked_first(static_cast<__mmask16>(mask), v);
    if constexpr (sizeof(T) == 1) {
        const __m128i bytes = as_bytes(v);
        __builtin_memcpy(to, &bytes, sizeof bytes);
    } else {
        __builtin_memcpy(to, &v, sizeof v);
    }
    return __builtin_popcount(mask);
}

inline __m512i numbers_from(int first) {
    return _mm512_add_epi32(_mm512_set1_epi32(first),
                            _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
}

inline std::uint64_t first_lanes(std::int64_t n) {
    return n < 64 ? (std::uint64_t{1} << n) - 1 : ~std::uint64_t{0};
}

// The sum of both halves. Older versions of SIMDe have no extractf32x8.
inline __m256 sum_of_halves(__m512 v) {
    const __m512i bits = _mm512_castps_si512(v);
    return _mm512_castps512_ps256(v) +
           _mm512_castps512_ps256(_mm512_castsi512_ps(_mm512_shuffle_i32x4(bits, bits, 0xee)));
}

inline float sum_of_lanes(__m512 v) {
    const __m256 half = sum_of_halves(v);
    const __m128 quarter = _mm256_castps256_ps128(half) + _mm256_extractf128_ps(half, 1);
    return (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);
}

// The sums of the lanes of four vectors: step by step, halves of two of them are added in one instruction.
template <class V>
inline void sums_of_four(const V (&v)[4], float* sums) {
    __m512 a[4];
    __builtin_memcpy(a, v, sizeof a);
    const __m512 low = _mm512_unpacklo_ps(a[0], a[1]) + _mm512_unpackhi_ps(a[0], a[1]);
    const __m512 high = _mm512_unpacklo_ps(a[2], a[3]) + _mm512_unpackhi_ps(a[2], a[3]);
    // In each quarter now the sums of two pairs of lanes: 0 1 0 1 and 2 3 2 3.
    const __m512d first = _mm512_castps_pd(low), second = _mm512_castps_pd(high);
    const __m512 quarters = _mm512_castpd_ps(_mm512_unpacklo_pd(first, second)) +
                            _mm512_castpd_ps(_mm512_unpackhi_pd(first, second));
    const __m256 halves = sum_of_halves(quarters);
    _mm_storeu_ps(sums, _mm256_castps256_ps128(halves) + _mm256_extractf128_ps(halves, 1));
}

// A code as W words in a register, zeros behind its end: W is 2, 4 or 8. A whole one fills them.
template <class V, bool kWhole>
inline V load_code(const std::uint8_t* code, std::uint64_t mask) {
    if (!kWhole) return masked_load<V>(mask, code);
    V v;
    __builtin_memcpy(&v, code, sizeof v);
    return v;
}

// Number v of W registers with 8 codes of W words, in an order that `sums_of_eight` undoes.
template <int W, bool kWhole>
inline __m512i load_codes(const std::uint8_t* codes, std::int64_t stride, int v, std::uint64_t mask) {
    if constexpr (W == 2) {   // codes v, v + 2, v + 4, v + 6
        const auto code = [&](int c) { return load_code<__m128i, kWhole>(codes + (v + c) * stride, mask); };
        __m512i all = _mm512_castsi128_si512(code(0));
        all = _mm512_inserti32x4(all, code(2), 1);
        all = _mm512_inserti32x4(all, code(4), 2);
        return _mm512_inserti32x4(all, code(6), 3);
    } else if constexpr (W == 4) {   // codes 0 and 2, 1 and 3, 4 and 6, 5 and 7
        const auto code = [&](int c) {
            return load_code<__m256i, kWhole>(codes + (v % 2 + v / 2 * 4 + c) * stride, mask);
        };
        return _mm512_inserti64x4(_mm512_castsi256_si512(code(0)), code(2), 1);
    } else {
        return load_code<__m512i, kWhole>(codes + v * stride, mask);
    }
}

template <int W, bool kWhole>
inline __m512i load_query(const std::uint8_t* code, std::uint64_t mask) {
    if constexpr (W == 8) {
        return load_code<__m512i, kWhole>(code, mask);
    } else if constexpr (W == 4) {
        const __m256i own = load_code<__m256i, kWhole>(code, mask);
        return _mm512_broadcast_i64x4(own);
    } else {
        const __m128i own = load_code<__m128i, kWhole>(code, mask);
        return _mm512_broadcast_i32x4(own);
    }
}

// The sums of the W words of each of 8 codes, in order.
template <int W>
inline __m512i sums_of_eight(const __m512i (&counts)[W]) {
    const auto of_neighbours = [](__m512i a, __m512i b) {
        return _mm512_add_epi64(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    };
    [[maybe_unused]] const auto of_pairs = [](__m512i a, __m512i b) {   // GCC 9: not for W == 2
        return _mm512_add_epi64(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
    };
    if constexpr (W == 2) {
        return of_neighbours(counts[0], counts[1]);
    } else if constexpr (W == 4) {
        return of_pairs(of_neighbours(counts[0], counts[1]), of_neighbours(counts[2], counts[3]));
    } else {
        return of_pairs(of_pairs(of_neighbours(counts[0], counts[1]), of_neighbours(counts[2], counts[3])),
                        of_pairs(of_neighbours(counts[4], counts[5]), of_neighbours(counts[6], counts[7])));
    }
}

inline __m512i differences(__m512i a, __m512i b) {
    return _mm512_popcnt_epi64(_mm512_xor_si512(a, b));
}

// Distances of 8 codes at a time, of n >= 8. kLong: of more than 64 bytes, of which kWhole ones have no rest.
template <int W, bool kWhole, bool kLong = false>
void hamming_by_eights(const CodeQuery& query, const std::uint8_t* codes, int n, std::int32_t* distances,
                       std::int64_t ahead) {
    const std::int64_t stride = query.stride, n_long = kLong ? query.n_bytes / 64 : 0;
    const std::int64_t rest = 64 * n_long;   // where it begins
    const std::uint64_t mask = first_lanes(query.n_bytes - rest);
    const bool has_rest = !kLong || !kWhole;
    const __m512i own = has_rest ? load_query<W, kWhole>(query.code + rest, mask) : __m512i{};
    for (int done = 0; done < n; done += 8) {
        const int c = done + 8 <= n ? done : n - 8;   // the last eight may have been counted in part
        const std::uint8_t* const eight = codes + c * stride;
        if (kLong) {
            for (std::int64_t at = 0; at < 8 * stride; at += 64) __builtin_prefetch(eight + ahead + at);
        } else {
#pragma GCC unroll 9
            for (int line = 0; line <= W; line++) __builtin_prefetch(eight + ahead + 64 * line);   // of codes and norms
        }
        __m512i counts[W];
#pragma GCC unroll 8
        for (int v = 0; v < W; v++)
            counts[v] = has_rest ? differences(load_codes<W, kWhole>(eight + rest, stride, v, mask), own) : __m512i{};
        for (std::int64_t part = 0; part < rest; part += 64) {
            const __m512i own_part = load_query<8, true>(query.code + part, 0);
#pragma GCC unroll 8
            for (int v = 0; v < W; v++)
                counts[v] = _mm512_add_epi64(
                        counts[v], differences(load_codes<8, true>(eight + part, stride, v, 0), own_part));
        }
        const __m256i sums = _mm512_cvtepi64_epi32(sums_of_eight<W>(counts));
        __builtin_memcpy(distances + c, &sums, sizeof sums);
    }
}

// Codes of 8 bytes without anything between them.
inline void hamming_of_words(const CodeQuery& query, const std::uint8_t* codes, int n, std::int32_t* distances) {
    std::int64_t word;
    __builtin_memcpy(&word, query.code, sizeof word);
    for (int done = 0; done < n; done += 8) {
        const int c = done + 8 <= n ? done : n - 8;
        const __m256i sums = _mm512_cvtepi64_epi32(
                differences(load_code<__m512i, true>(codes + 8 * c, 0), _mm512_set1_epi64(word)));
        __builtin_memcpy(distances + c, &sums, sizeof sums);
    }
}

// As all_distances; false, with nothing done, where that takes no more time: for few or short codes.
inline bool distances_by_eights(const CodeQuery& query, const std::uint8_t* codes, int n, std::int32_t* distances,
                                std::int64_t ahead) {
    const std::int64_t n_bytes = query.n_bytes;
    if (n < 8 || n_bytes < 8 || (n_bytes == 8 && query.stride != 8)) return false;
    const auto count = [&](auto by_eights) { by_eights(query, codes, n, distances, ahead); };
    if (n_bytes == 8)
        hamming_of_words(query, codes, n, distances);
    else if (n_bytes <= 16)
        n_bytes == 16 ? count(hamming_by_eights<2, true>) : count(hamming_by_eights<2, false>);
    else if (n_bytes <= 32)
        n_bytes == 32 ? count(hamming_by_eights<4, true>) : count(hamming_by_eights<4, false>);
    else if (n_bytes <= 64)
        n_bytes == 64 ? count(hamming_by_eights<8, true>) : count(hamming_by_eights<8, false>);
    else
        n_bytes % 64 ? count(hamming_by_eights<8, false, true>) : count(hamming_by_eights<8, true, true>);
    return true;
}

inline float signed_sum(const std::uint8_t* code, std::int64_t n_bytes, const float* r, float sum) {
    constexpr int kChains = 4;   // of additions, which would wait for each other
    __m512 sums[kChains] = {};
    const auto add = [&](std::int64_t byte, int chain) {
        __mmask16 mask;
        __builtin_memcpy(&mask, code + byte, sizeof mask);
        sums[chain] = _mm512_mask_add_ps(sums[chain], mask, sums[chain], _mm512_loadu_ps(r + 8 * byte));
    };
    std::int64_t byte = 0;
    for (; byte + 2 * kChains <= n_bytes; byte += 2 * kChains) {
#pragma GCC unroll 4
        for (int chain = 0; chain < kChains; chain++) add(byte + 2 * chain, chain);
    }
    for (; byte + 2 <= n_bytes; byte += 2) add(byte, 0);
    if (byte < n_bytes) sums[1] = _mm512_add_ps(sums[1], masked_load<__m512>(code[byte], r + 8 * byte));
    return 2 * sum_of_lanes((sums[0] + sums[1]) + (sums[2] + sums[3])) - sum;
}

// signed_sum() of four codes at once.
inline void signed_sums(const std::uint8_t* codes, std::int64_t stride, const std::int32_t* positions,
                        std::int64_t n_bytes, const float* r, float sum, float* products) {
    const std::uint8_t* four[4];
    __m512 sums[4];
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        four[c] = codes + positions[c] * stride;
        sums[c] = _mm512_setzero_ps();
    }
    std::int64_t byte = 0;
    for (; byte + 2 <= n_bytes; byte += 2) {
        const __m512 values = _mm512_loadu_ps(r + 8 * byte);
#pragma GCC unroll 4
        for (int c = 0; c < 4; c++) {
            __mmask16 mask;
            __builtin_memcpy(&mask, four[c] + byte, sizeof mask);
            sums[c] = _mm512_mask_add_ps(sums[c], mask, sums[c], values);
        }
    }
    if (byte < n_bytes)
        for (int c = 0; c < 4; c++)
            sums[c] = _mm512_add_ps(sums[c], masked_load<__m512>(four[c][byte], r + 8 * byte));
    sums_of_four(sums, products);
    for (int c = 0; c < 4; c++) products[c] = 2 * products[c] - sum;
}

inline Residual residual(std::int64_t d, const float* z, const float* c, float* r, std::uint8_t* code) {
    __m512 squares = {}, sums = {};
    for (std::int64_t i = 0; i < d; i += 16) {
        const auto mask = static_cast<__mmask16>(first_lanes(d - i < 16 ? d - i : 16));
        __m512 v = masked_load<__m512>(mask, z + i);
        if (c) v -= masked_load<__m512>(mask, c + i);
        masked_store(r + i, mask, v);
        squares += v * v;
        sums += v;
        const unsigned bits = mask & _mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_GE_OQ);
        code[i / 8] = static_cast<std::uint8_t>(bits);
        if (d - i > 8) code[i / 8 + 1] = static_cast<std::uint8_t>(bits >> 8);
    }
    return {sum_of_lanes(squares), sum_of_lanes(sums)};
}

}  // namespace
}  // namespace prh
