// The inner loops of learning, spread over threads. Each row or pair is one thread's, so that the sums do not depend on
// how many threads there are.
#include <cmath>

#include "dispatch.hpp"
#include "prh.h"
#include "threads.hpp"

namespace {

// Rows are handed out so that a part is worth a thread.
constexpr std::int64_t kMinFloatsAThread = 1 << 18;

std::int64_t min_rows(std::int64_t m) {
    return kMinFloatsAThread / m + 1;
}

}  // namespace

void prh_sample_fill(float* rows, std::int64_t n, std::int64_t m, std::int64_t first, std::int64_t count,
                     const float* x) {
    prh::parallel_for(n, prh::kTile, min_rows(count), [&](std::int64_t begin, std::int64_t end) {
        prh::kernel().sample_fill(rows, begin, end, n, m, first, count, x);
    });
}

void prh_sample_centre(float* rows, std::int64_t n, std::int64_t m, double* means) {
    prh::parallel_for(n, 1, min_rows(m), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; r++) means[r] = prh::kernel().sample_centre(rows + r * m, m);
    });
}

void prh_sample_covariances(const float* rows, std::int64_t m, std::int64_t n_pairs, const std::int32_t* i,
                            const std::int32_t* j, double* covariances) {
    prh::parallel_for(n_pairs, 1, min_rows(m), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t p = begin; p < end; p++)
            covariances[p] = prh::kernel().sample_covariance(rows + i[p] * m, rows + j[p] * m, m);
    });
}

void prh_sample_rotate(float* rows, std::int64_t m, std::int64_t n_pairs, const std::int32_t* i,
                       const std::int32_t* j, const float* theta) {
    prh::parallel_for(n_pairs, 1, min_rows(m), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t p = begin; p < end; p++)
            prh::kernel().sample_rotate(rows + i[p] * m, rows + j[p] * m, m, std::cos(theta[p]), std::sin(theta[p]));
    });
}
