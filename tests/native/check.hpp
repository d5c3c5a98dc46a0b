// What the parts of the check program share.
#pragma once

#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <random>
#include <vector>

#include "prh.h"

using Floats = std::vector<float>;
using Doubles = std::vector<double>;
using Bytes = std::vector<std::uint8_t>;
using Numbers = std::vector<std::int64_t>;

// Counted without ordering: the order that a sanitizer for threads sees must be the library's.
inline std::atomic<int> n_failures{0};
inline std::atomic<long> n_checks{0};

#if defined(__MINGW32__) && !defined(__clang__)
#define PRH_PRINTF gnu_printf   // with %zu, as <cstdio> has it in C++
#else
#define PRH_PRINTF printf
#endif

__attribute__((format(PRH_PRINTF, 2, 3))) inline void check(bool good, const char* format, ...) {
    n_checks.fetch_add(1, std::memory_order_relaxed);
    if (good || n_failures.fetch_add(1, std::memory_order_relaxed) > 20) return;
    va_list arguments;
    va_start(arguments, format);
    std::fprintf(stderr, "%s: ", prh_active_simd_level());
    std::vfprintf(stderr, format, arguments);
    std::fprintf(stderr, "\n");
    va_end(arguments);
}

inline void succeed(const char* failure) {
    check(!failure, "failed: %s", failure ? failure : "");
}
inline void succeed(std::int64_t unusable_row) {
    check(unusable_row == -1, "failed at row %lld", static_cast<long long>(unusable_row));
}

inline int one_thread() {
    return 1;
}
inline int four_threads() {
    return 4;
}

class Random {
  public:
    explicit Random(unsigned seed) : engine_(seed) {}
    int below(int n) { return static_cast<int>(engine_() % static_cast<unsigned>(n)); }
    float value() { return static_cast<float>(engine_() / 2147483648.0 - 1); }
    Floats values(std::int64_t n) {
        Floats all(n);
        for (float& v : all) v = value();
        return all;
    }
    std::vector<std::int32_t> order(int n) {
        std::vector<std::int32_t> all(n);
        std::iota(all.begin(), all.end(), 0);
        for (int k = n - 1; k > 0; k--) std::swap(all[k], all[below(k + 1)]);
        return all;
    }

  private:
    std::mt19937 engine_;
};

// Learning angles together: check_joint.cpp.
void check_joint();
// The nearest of vectors, and the least of distances: check_neighbours.cpp.
void check_neighbours();
// Products of matrices, and moments: check_products.cpp.
void check_matrices();
// Searching, ranking and range searching: check_scan.cpp.
void check_scanning();
