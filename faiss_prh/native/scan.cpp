// Compiled once for each SIMD level with PRH_LEVEL (a namespace) and PRH_LANES set.
#include "scan.hpp"

#include "kth.hpp"
#include "simd.hpp"
#include "sums.hpp"

namespace prh {
namespace {

using Word = VectorTypes<PRH_LANES>::Word;
typedef std::int32_t Signed __attribute__((vector_size(sizeof(Word))));

inline int popcount(std::uint64_t word) {
#if defined(__x86_64__) && !defined(__POPCNT__)   // where the compiler would call a function
    word -= word >> 1 & 0x5555555555555555;
    word = (word & 0x3333333333333333) + (word >> 2 & 0x3333333333333333);
    return static_cast<int>(((word + (word >> 4)) & 0x0f0f0f0f0f0f0f0f) * 0x0101010101010101 >> 56);
#else
    return __builtin_popcountll(word);
#endif
}

inline std::uint64_t load_word(const std::uint8_t* from) {
    std::uint64_t word;
    __builtin_memcpy(&word, from, sizeof word);
    return word;
}

// The last word of a code whose number of bytes is no multiple of 8, without reading beyond its end.
inline std::uint64_t load_tail(const std::uint8_t* code, std::int64_t n_bytes) {
    const int n = static_cast<int>(n_bytes % 8);
    if (n_bytes > 8) return load_word(code + n_bytes - 8) >> 8 * (8 - n);
    std::uint64_t word = 0;
    for (int byte = n; byte-- > 0;) word = word << 8 | code[byte];
    return word;
}

#ifdef __AVX2__
// The bits in which two runs of n bytes differ, n a multiple of 32: counted for each half of a byte from a table.
inline int popcount_of_difference(const std::uint8_t* a, const std::uint8_t* b, std::int64_t n) {
    const __m256i low = _mm256_set1_epi8(15), table = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
    __m256i total = _mm256_setzero_si256();
    for (std::int64_t i = 0; i < n; i += 32) {
        const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(a + i)),
                      y = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b + i)), v = _mm256_xor_si256(x, y);
        const __m256i counts =
            _mm256_add_epi8(_mm256_shuffle_epi8(table, _mm256_and_si256(v, low)),
                            _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(v, 4), low)));
        total = _mm256_add_epi64(total, _mm256_sad_epu8(counts, _mm256_setzero_si256()));
    }
    const __m128i half = _mm_add_epi64(_mm256_castsi256_si128(total), _mm256_extracti128_si256(total, 1));
    return static_cast<int>(_mm_cvtsi128_si64(half) + _mm_extract_epi64(half, 1));
}
constexpr std::int64_t kRun = 32;
#else
inline int popcount_of_difference(const std::uint8_t*, const std::uint8_t*, std::int64_t) {
    return 0;
}
constexpr std::int64_t kRun = std::int64_t{1} << 62;   // no level for runs: all is done word by word
#endif

// How far ahead codes are fetched: lists are too short for the processor to see by itself that they are read in order.
constexpr std::int64_t kAhead = 1024;

// A code has W words of 8 bytes, or any number if W is 0, and if kTail some bytes more.
template <int W, bool kTail>
void hamming(const CodeQuery& query, const std::uint8_t* codes, int n, std::int32_t* __restrict distances) {
    const std::int64_t n_bytes = query.n_bytes, stride = query.stride, n_words = W ? W : n_bytes / 8;
    const std::int64_t in_runs = n_bytes / kRun * kRun;
    const std::uint8_t* const code = query.code;
    std::uint64_t words[W ? W : 1], tail = 0;
    for (int w = 0; w < W; w++) words[w] = load_word(code + 8 * w);
    if (kTail) tail = load_tail(code, n_bytes);
    const auto distance_to = [&](const std::uint8_t* other) {
        int distance = kTail ? popcount(load_tail(other, n_bytes) ^ tail) : 0;
        if (!W) distance += popcount_of_difference(other, code, in_runs);
        for (std::int64_t w = W ? 0 : in_runs / 8; w < n_words; w++)
            distance += popcount(load_word(other + 8 * w) ^ (W ? words[w] : load_word(code + 8 * w)));
        return distance;
    };
#pragma GCC unroll 4
    for (int c = 0; c < n; c++, codes += stride) {
        __builtin_prefetch(codes + kAhead);
        distances[c] = distance_to(codes);
    }
}

void all_distances(const CodeQuery& query, const std::uint8_t* codes, int n, std::int32_t* distances) {
#if PRH_LANES == 16
    if (distances_by_eights(query, codes, n, distances, kAhead)) return;
#endif
    const auto with = [&](auto whole, auto tail) {
        (query.n_bytes % 8 ? tail : whole)(query, codes, n, distances);
    };
    switch (query.n_bytes / 8) {
        case 1: return with(hamming<1, false>, hamming<1, true>);
        case 2: return with(hamming<2, false>, hamming<2, true>);
        case 3: return with(hamming<3, false>, hamming<3, true>);
        case 4: return with(hamming<4, false>, hamming<4, true>);
        case 6: return with(hamming<6, false>, hamming<6, true>);
        case 8: return with(hamming<8, false>, hamming<8, true>);
        default: return with(hamming<0, false>, hamming<0, true>);
    }
}

inline Word load_words(const std::int32_t* from) {
    Word words;
    __builtin_memcpy(&words, from, sizeof words);
    return words;
}

// A bit for each lane where a is less than b. Words are below 2^31.
#if PRH_LANES == 16
inline std::uint32_t in_general_register(__mmask16 mask) {
    std::uint32_t bits = mask;
    // GCC 12 at -O1 writes the 16 bits to memory, and reads 32 from there.
    asm("" : "+r"(bits));
    return bits;
}
inline std::uint32_t below(Float a, float b) {
    return in_general_register(
        _mm512_cmp_ps_mask(reinterpret_cast<__m512>(a), _mm512_set1_ps(b), _CMP_LT_OQ));
}
inline std::uint32_t below(Word a, std::int32_t b) {
    return in_general_register(
        _mm512_cmpgt_epi32_mask(_mm512_set1_epi32(b), reinterpret_cast<__m512i>(a)));
}
#else
inline std::uint32_t below(Float a, float b) {
    return lane_mask(reinterpret_cast<Word>(a < b));
}
inline std::uint32_t below(Word a, std::int32_t b) {
    return lane_mask(reinterpret_cast<Word>(reinterpret_cast<Signed>(a) < b));
}
#endif

struct SetBits {
    std::uint64_t of[256];   // for each byte, the numbers of its set bits, a byte for each
};

constexpr SetBits make_set_bits() {
    SetBits all{};
    for (int byte = 0; byte < 256; byte++)
        for (int bit = 0, n = 0; bit < 8; bit++)
            if (byte >> bit & 1) all.of[byte] |= static_cast<std::uint64_t>(bit) << 8 * n++;
    return all;
}

alignas(64) constexpr SetBits kSetBits = make_set_bits();

// Writes first + lane for each bit of a mask, among the first n_lanes, and gives how many. Without a branch: which codes are
// near is what a processor cannot foresee, and a wrong guess takes as long as counting the bits of ten codes.
inline int write_lanes(std::uint32_t mask, int first, int n_lanes, std::uint8_t* to) {
    if (n_lanes < PRH_LANES) mask &= (1u << n_lanes) - 1;
    constexpr std::uint64_t kEightOnes = 0x0101010101010101;
    int n = 0;
    for (int lane = 0; lane < PRH_LANES; lane += 8, mask >>= 8) {
        const std::uint64_t eight = kSetBits.of[mask & 255] + kEightOnes * static_cast<std::uint64_t>(first + lane);
        __builtin_memcpy(to + n, &eight, sizeof eight);
        n += popcount(mask & 255);
    }
    return n;
}

int near(const CodeQuery& query, const std::uint8_t* codes, int n, std::int32_t threshold, std::int32_t* distances,
         std::uint8_t* positions) {
    all_distances(query, codes, n, distances);
    int count = 0;
    for (int first = 0; first < n; first += PRH_LANES) {
        const std::uint32_t mask = below(load_words(distances + first), threshold);
        if (mask) count += write_lanes(mask, first, n - first, positions + count);   // rarely: the lists are long
    }
    return count;
}

#if PRH_LANES == 8
float signed_sum(const std::uint8_t* code, std::int64_t n_bytes, const float* r, float sum) {
    // A masked load looks at the highest bit of each lane: shifted so far, that is one of the code.
    const __m256i to_highest = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
    constexpr int kChains = 4;   // of additions, which would wait for each other
    __m256 sums[kChains] = {};
    std::int64_t byte = 0;
    for (; byte + kChains <= n_bytes; byte += kChains) {
        std::int32_t word;
        __builtin_memcpy(&word, code + byte, sizeof word);
        for (int chain = 0; chain < kChains; chain++) {
            const __m256i shifts = _mm256_sub_epi32(to_highest, _mm256_set1_epi32(8 * chain));
            const __m256i mask = _mm256_sllv_epi32(_mm256_set1_epi32(word), shifts);
            sums[chain] += _mm256_maskload_ps(r + 8 * (byte + chain), mask);
        }
    }
    for (; byte < n_bytes; byte++) {
        const __m256i mask = _mm256_sllv_epi32(_mm256_set1_epi32(code[byte]), to_highest);
        sums[0] += _mm256_maskload_ps(r + 8 * byte, mask);
    }
    return 2 * sum_of_lanes(VectorTypes<8>::Float((sums[0] + sums[1]) + (sums[2] + sums[3]))) - sum;
}
#elif PRH_LANES < 8
struct BitMasks {
    std::uint32_t of[256][8];   // for each byte, all ones where the bit is set
};

constexpr BitMasks make_bit_masks() {
    BitMasks masks{};
    for (int byte = 0; byte < 256; byte++)
        for (int bit = 0; bit < 8; bit++) masks.of[byte][bit] = byte >> bit & 1 ? ~0u : 0u;
    return masks;
}

alignas(64) constexpr BitMasks kBitMasks = make_bit_masks();

float signed_sum(const std::uint8_t* code, std::int64_t n_bytes, const float* r, float sum) {
    constexpr int kParts = 8 / PRH_LANES;
    constexpr int kChains = 4;   // of additions, which would wait for each other
    Float sums[kChains][kParts] = {};
    const auto add = [&](std::int64_t byte, int chain) {
        for (int part = 0; part < kParts; part++) {
            Word mask, value;
            __builtin_memcpy(&mask, kBitMasks.of[code[byte]] + part * PRH_LANES, sizeof mask);
            __builtin_memcpy(&value, r + byte * 8 + part * PRH_LANES, sizeof value);
            sums[chain][part] += reinterpret_cast<Float>(mask & value);
        }
    };
    std::int64_t byte = 0;
    for (; byte + kChains <= n_bytes; byte += kChains)
        for (int chain = 0; chain < kChains; chain++) add(byte + chain, chain);
    for (; byte < n_bytes; byte++) add(byte, 0);
    Float all = {};
    for (int part = 0; part < kParts; part++)
        all += (sums[0][part] + sums[1][part]) + (sums[2][part] + sums[3][part]);
    return 2 * sum_of_lanes(all) - sum;
}
#endif

// acos to 7e-5: of Abramowitz and Stegun, 4.4.45. The library's function took a thirtieth of a scan.
inline float arc_cosine(float x) {
    const float a = __builtin_fabsf(x);
    const float y = __builtin_sqrtf(1 - a) * (1.5707288f + a * (-0.2121144f + a * (0.0742610f - a * 0.0187293f)));
    return x < 0 ? 3.14159265f - y : y;
}

// A code with more different bits than this is not below the threshold, whatever its norm. That most codes have more is
// what makes scanning fast: their norms are not even read.
std::int32_t most_bits(const Estimate& e, float threshold) {
    constexpr float kAllBits = 1 << 30, kError = 3e-4f;   // of `cosine`, and of rounding
    const float high = e.low + 255 * e.step, room = threshold - e.base;
    // The norm with which a code may be below the threshold at the least cosine.
    const float best = room >= 0 ? e.low : e.square ? __builtin_sqrtf(-room / e.square) : high;
    const float length = best < e.low ? e.low : best > high ? high : best;
    const float least = (e.square * length - room / length) / e.product - e.margin - kError;
    if (!(least > -1)) return static_cast<std::int32_t>(kAllBits);   // also if it is not a number
    return least > 1 ? -1 : static_cast<std::int32_t>((arc_cosine(least) + kError) / e.angle) + 1;
}

// Integers below 2^31 as floats. Of unsigned ones the compiler would make more work.
inline Float as_floats(Word words) {
    return __builtin_convertvector(reinterpret_cast<Signed>(words), Float);
}

// The estimate by bits, with the margin; and the length that the byte for it means.
inline Float at_least(const Estimate& e, Word bits, Word norms, Float& length) {
    // cos x = sin(π/2 − x), to a ten-thousandth
    const Float u = 1.57079633f - e.angle * as_floats(bits), u2 = u * u;
    const Float cosine = u * (0.9999f + u2 * (-0.166627f + u2 * 0.0079826f));
    length = e.low + e.step * as_floats(norms);
    return e.base + length * (e.square * length - e.product * (cosine + e.margin));
}

#if PRH_LANES == 16
int promising(const CodeQuery& query, const Estimate& estimate, const std::uint8_t* codes, int n, float threshold,
              float* estimates, std::uint8_t* positions) {
    std::int32_t distances[kBlock], near[kRoom], bits[kRoom], norms[kRoom], close[kRoom];
    float lengths[kRoom], products[kRoom];
    const Estimate e = estimate;   // in registers
    const std::int32_t most = most_bits(e, threshold) + 1;   // now, so that nothing waits for it
    all_distances(query, codes, n, distances);
    const std::int64_t stride = query.stride;
    const std::uint8_t* const behind = codes + query.n_bytes;
    int n_near = 0, n_close = 0, n_found = 0;
    for (int first = 0; first < n; first += 16) {
        const Word own = load_words(distances + first);
        const std::uint32_t mask = below(own, most) & first_lanes(n - first);
        write_some(mask, reinterpret_cast<__m512i>(own), bits + n_near);
        n_near += write_some(mask, numbers_from(first), near + n_near);
    }
    for (int p = 0; p < n_near; p++) norms[p] = behind[near[p] * stride];
    for (int first = 0; first < n_near; first += 16) {
        Float length;
        const Float least = at_least(e, load_words(bits + first), load_words(norms + first), length);
        const std::uint32_t mask = below(least, threshold) & first_lanes(n_near - first);
        write_some(mask, reinterpret_cast<__m512i>(length), lengths + n_close);
        n_close += write_some(mask, reinterpret_cast<__m512i>(load_words(near + first)), close + n_close);
    }
    for (int p = n_close; p % 4; p++) close[p] = 0;
    for (int p = 0; p < n_close; p += 4) signed_sums(codes, stride, close + p, query.n_bytes, e.r, e.sum, products + p);
    for (int first = 0; first < n_close; first += 16) {
        const Float length = load<Float>(lengths + first);
        const Float found = e.base + length * (e.square * length - e.reach * load<Float>(products + first));
        const std::uint32_t mask = below(found, threshold) & first_lanes(n_close - first);
        write_some(mask, reinterpret_cast<__m512i>(found), estimates + n_found);
        n_found += write_some(mask, reinterpret_cast<__m512i>(load_words(close + first)), positions + n_found);
    }
    return n_found;
}
#else
int promising(const CodeQuery& query, const Estimate& estimate, const std::uint8_t* codes, int n, float threshold,
              float* estimates, std::uint8_t* positions) {
    std::int32_t distances[kBlock];
    all_distances(query, codes, n, distances);
    const Estimate e = estimate;   // in registers
    const std::int64_t stride = query.stride;
    const std::uint8_t* const behind = codes + query.n_bytes;
    const std::int32_t most = most_bits(e, threshold) + 1;
    std::uint8_t near[kRoom], close[kRoom];
    int n_near = 0, n_close = 0, n_found = 0;
    for (int first = 0; first < n; first += PRH_LANES)
        n_near += write_lanes(below(load_words(distances + first), most), first, n - first, near + n_near);
    std::int32_t bits[kBlock], norms[kBlock];
    for (int p = 0; p < n_near; p++) {
        bits[p] = distances[near[p]];
        norms[p] = behind[near[p] * stride];
    }
    for (int first = 0; first < n_near; first += PRH_LANES) {
        Float length;
        const Float least = at_least(e, load_words(bits + first), load_words(norms + first), length);
        n_close += write_lanes(below(least, threshold), first, n_near - first, close + n_close);
    }
    for (int p = 0; p < n_close; p++) {
        const std::uint8_t position = near[close[p]];
        const std::int64_t at = position * stride;
        const float length = e.low + e.step * static_cast<float>(behind[at]);
        const float product = signed_sum(codes + at, query.n_bytes, e.r, e.sum);
        estimates[n_found] = e.base + length * (e.square * length - e.reach * product);
        positions[n_found] = position;
        n_found += estimates[n_found] < threshold;
    }
    return n_found;
}
#endif

#if PRH_LANES < 16
Residual residual(std::int64_t d, const float* z, const float* c, float* r, std::uint8_t* code) {
    Float squares = {}, sums = {};
    std::int64_t i = 0;
    for (; i + 8 <= d; i += 8) {
        std::uint32_t bits = 0;
        for (int part = 0; part < 8; part += PRH_LANES) {
            Float v = load<Float>(z + i + part);
            if (c) v -= load<Float>(c + i + part);
            store(r + i + part, v);
            squares += v * v;
            sums += v;
            bits |= lane_mask(reinterpret_cast<Word>(v >= 0)) << part;
        }
        code[i / 8] = static_cast<std::uint8_t>(bits);
    }
    Residual found{sum_of_lanes(squares), sum_of_lanes(sums)};
    if (i < d) code[i / 8] = 0;
    for (; i < d; i++) {
        const float v = c ? z[i] - c[i] : z[i];
        r[i] = v;
        found.squares += v * v;
        found.sum += v;
        code[i / 8] |= static_cast<std::uint8_t>((v >= 0) << i % 8);
    }
    return found;
}

#endif

}  // namespace

namespace PRH_LEVEL {
extern const ScanKernel scan_kernel = {near, promising, signed_sum, residual, products, dot, square_distance, kth};
}

}  // namespace prh
