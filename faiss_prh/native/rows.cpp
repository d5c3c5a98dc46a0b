// The inner loops of learning, spread over threads. Each row or pair is one thread's, so that the sums do not depend on
// how many threads there are.
#include <algorithm>
#include <cmath>

#include "dispatch.hpp"
#include "failure.hpp"
#include "prh.h"
#include "threads.hpp"

namespace {

constexpr std::int64_t kChunkFloats = 1 << 18;

// Calls work(row) for 0 .. n, where a row is of m floats.
template <class Work>
const char* for_rows(std::int64_t n, std::int64_t m, const Work& work) {
    return prh::caught([&] {
        prh::parallel_for(n, kChunkFloats / m + 1, [&] {
            return [&](std::int64_t begin, std::int64_t end) {
                for (std::int64_t row = begin; row < end; row++) work(row);
            };
        });
    });
}

}  // namespace

const char* prh_rows_fill(float* rows, std::int64_t n, std::int64_t m, std::int64_t first, std::int64_t count,
                     const float* x) {
    // Whole cache lines of the vectors at a time.
    const std::int64_t chunk = (kChunkFloats / std::max<std::int64_t>(1, count) / prh::kTile + 1) * prh::kTile;
    return prh::caught([&] {
        prh::parallel_for(n, chunk, [&] {
            return [&](std::int64_t begin, std::int64_t end) {
                prh::kernel().rows_fill(rows, begin, end, n, m, first, count, x);
            };
        });
    });
}

const char* prh_rows_centre(float* rows, std::int64_t n, std::int64_t m, double* means) {
    return for_rows(n, m, [&](std::int64_t r) { means[r] = prh::kernel().rows_centre(rows + r * m, m); });
}

const char* prh_rows_covariances(const float* rows, std::int64_t m, std::int64_t n_pairs, const std::int32_t* i,
                            const std::int32_t* j, double* covariances) {
    return for_rows(n_pairs, m, [&](std::int64_t p) {
        covariances[p] = prh::kernel().rows_covariance(rows + i[p] * m, rows + j[p] * m, m);
    });
}

const char* prh_rows_rotate(float* rows, std::int64_t m, std::int64_t n_pairs, const std::int32_t* i,
                       const std::int32_t* j, const float* theta) {
    return for_rows(n_pairs, m, [&](std::int64_t p) {
        prh::kernel().rows_rotate(rows + i[p] * m, rows + j[p] * m, m, std::cos(theta[p]), std::sin(theta[p]));
    });
}
