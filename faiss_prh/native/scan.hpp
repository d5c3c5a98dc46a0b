// The inner loops of searching codes, compiled once for each SIMD level. Plain pointers only, as in kernel.hpp.
#pragma once

#include <cstdint>

namespace prh {

// Codes are looked at in blocks of up to so many.
constexpr int kBlock = 256;
constexpr int kRoom = kBlock + 16;   // for what is written of them up to sixteen at a time

// What a register holds of floats, at most.
constexpr int kMostLanes = 16;

// What codes are compared with. A code has n_bytes, and the next one begins `stride` bytes after it.
struct CodeQuery {
    const std::uint8_t* code;
    std::int64_t n_bytes, stride;
};

// Estimates of the squared distance of a vector from its code and the byte b behind it, which is for its norm:
//     base + n · (square · n − product · p)   with n = low + step · b.
// There are two for p. From the number h of bits that differ, cos(angle · h), to which a margin is added for its errors; and
// from the values of the query, reach · ⟨±1, r⟩. With `square` 0 it is an inner product with its sign turned.
struct Estimate {
    float base, square, product, angle, margin, low, step, reach;
    const float* r;   // 8 · n_bytes values
    float sum;        // of them
};

struct Residual {
    float squares, sum;   // of its values
};

struct ScanKernel {
    // Both write the positions of the codes of a block that are below a threshold, and give how many there are. The first
    // also writes the distances of all codes. The second looks only at codes for which the estimate by bits is below the
    // threshold, and writes their estimates by values if these are, too. Positions and estimates need kRoom.
    int (*near)(const CodeQuery& query, const std::uint8_t* codes, int n, std::int32_t threshold,
                std::int32_t* distances, std::uint8_t* positions);
    int (*promising)(const CodeQuery& query, const Estimate& estimate, const std::uint8_t* codes, int n,
                     float threshold, float* estimates, std::uint8_t* positions);
    // ⟨±1, r⟩ of a code; the estimate has r and its sum.
    float (*signed_sum)(const std::uint8_t* code, std::int64_t n_bytes, const float* r, float sum);
    // z − c (z if c is null) to r, and its signs to the code, whose last bits stay 0.
    Residual (*residual)(std::int64_t d, const float* z, const float* c, float* r, std::uint8_t* code);
    // The products of n vectors of d values with each of n_others, row by row; with room for kMostLanes · d values.
    void (*products)(std::int64_t d, std::int64_t n, const float* a, std::int64_t n_others, const float* b,
                     float* products, float* scratch);
    float (*dot)(std::int64_t d, const float* a, const float* b);
    float (*square_distance)(std::int64_t d, const float* a, const float* b);
    // A value that k of n values are not above, and no more of them than necessary: if not k, the others are equal to it.
    float (*kth)(std::int64_t n, const float* values, std::int64_t k);
};

namespace baseline {
extern const ScanKernel scan_kernel;
}
#ifdef PRH_HAVE_AVX2
namespace avx2 {
extern const ScanKernel scan_kernel;
}
#endif
#ifdef PRH_HAVE_AVX512
namespace avx512 {
extern const ScanKernel scan_kernel;
}
#endif

}  // namespace prh
