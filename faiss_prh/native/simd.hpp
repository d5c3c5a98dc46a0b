// The few vector operations the kernels need, on GCC/Clang vector types. Included with PRH_LANES defined.
#pragma once

#include <cstdint>

#ifdef __x86_64__
#include <immintrin.h>
#endif
#ifdef PRH_EMULATE_AVX512   // by SIMDe, for tests on machines without it
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#endif

namespace prh {
namespace {

template <int Lanes>
struct VectorTypes;
template <>
struct VectorTypes<4> {
    typedef float Float __attribute__((vector_size(16)));
    typedef std::uint32_t Word __attribute__((vector_size(16)));
};
template <>
struct VectorTypes<8> {
    typedef float Float __attribute__((vector_size(32)));
    typedef std::uint32_t Word __attribute__((vector_size(32)));
};
template <>
struct VectorTypes<16> {
    typedef float Float __attribute__((vector_size(64)));
    typedef std::uint32_t Word __attribute__((vector_size(64)));
};

typedef double Double4 __attribute__((vector_size(32)));

// For an asm statement that keeps a value in a register.
#if defined(__aarch64__)
#define PRH_IN_REGISTER(v) "+w"(v)
#elif defined(__x86_64__)
#define PRH_IN_REGISTER(v) "+x"(v)
#else
#define PRH_IN_REGISTER(v) "+m"(v)
#endif

template <class V>
constexpr int lanes = sizeof(V) / sizeof(float);

template <class V>
inline V load(const float* from) {
    V v;
    __builtin_memcpy(&v, from, sizeof v);
    return v;
}

template <class V>
inline void store(float* to, V v) {
    __builtin_memcpy(to, &v, sizeof v);
}

// A bit for each lane of a comparison: true is all ones.
inline std::uint32_t lane_mask(VectorTypes<4>::Word truth) {
#ifdef __x86_64__
    return static_cast<std::uint32_t>(_mm_movemask_ps(reinterpret_cast<__m128>(truth)));
#else
    return (truth[0] & 1) | (truth[1] & 2) | (truth[2] & 4) | (truth[3] & 8);
#endif
}

#ifdef __AVX2__
inline std::uint32_t lane_mask(VectorTypes<8>::Word truth) {
    return static_cast<std::uint32_t>(_mm256_movemask_ps(reinterpret_cast<__m256>(truth)));
}
#endif

#if PRH_LANES == 16
inline std::uint32_t lane_mask(VectorTypes<16>::Word truth) {
    return _mm512_movepi32_mask(reinterpret_cast<__m512i>(truth));
}
#endif

#if defined(__clang__) || __GNUC__ >= 12
#define PRH_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define PRH_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, decltype((a) > (b)){__VA_ARGS__})
#endif

using Float4 = VectorTypes<4>::Float;

// Reads 4 values at `from` and, for 8 lanes, 4 more at `from_upper`.
template <class V>
V load_fours(const float* from, const float* from_upper);

template <>
inline Float4 load_fours(const float* from, const float*) {
    return load<Float4>(from);
}

inline void store_fours(float* to, float*, Float4 v) {
    store(to, v);
}

// Transposes the 4×4 block in each four lanes, in place.
inline void transpose_fours(Float4 (&r)[4]) {
    const Float4 a = PRH_SHUFFLE(r[0], r[1], 0, 4, 1, 5), b = PRH_SHUFFLE(r[0], r[1], 2, 6, 3, 7);
    const Float4 c = PRH_SHUFFLE(r[2], r[3], 0, 4, 1, 5), d = PRH_SHUFFLE(r[2], r[3], 2, 6, 3, 7);
    r[0] = PRH_SHUFFLE(a, c, 0, 1, 4, 5);
    r[1] = PRH_SHUFFLE(a, c, 2, 3, 6, 7);
    r[2] = PRH_SHUFFLE(b, d, 0, 1, 4, 5);
    r[3] = PRH_SHUFFLE(b, d, 2, 3, 6, 7);
}

#ifdef __AVX2__
using Float8 = VectorTypes<8>::Float;

template <>
inline Float8 load_fours(const float* from, const float* from_upper) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(from)), _mm_loadu_ps(from_upper), 1);
}

inline void store_fours(float* to, float* to_upper, Float8 v) {
    _mm_storeu_ps(to, _mm256_castps256_ps128(v));
    _mm_storeu_ps(to_upper, _mm256_extractf128_ps(v, 1));
}

inline void transpose_fours(Float8 (&r)[4]) {
    const Float8 a = _mm256_unpacklo_ps(r[0], r[1]), b = _mm256_unpackhi_ps(r[0], r[1]);
    const Float8 c = _mm256_unpacklo_ps(r[2], r[3]), d = _mm256_unpackhi_ps(r[2], r[3]);
    r[0] = _mm256_shuffle_ps(a, c, 0x44);
    r[1] = _mm256_shuffle_ps(a, c, 0xee);
    r[2] = _mm256_shuffle_ps(b, d, 0x44);
    r[3] = _mm256_shuffle_ps(b, d, 0xee);
}
#endif

}  // namespace
}  // namespace prh
