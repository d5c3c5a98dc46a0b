// The inner loops of learning, spread over threads. Each row or pair is one thread's, so that the sums do not depend on
// how many threads there are.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

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
        // By way of double precision, which every library of mathematics rounds to the same float.
        const double angle = theta[p];
        prh::joint_kernel().rows_rotate(rows + i[p] * m, rows + j[p] * m, m, static_cast<float>(std::cos(angle)),
                                        static_cast<float>(std::sin(angle)));
    });
}

const char* prh_matrix_rotate(double* matrix, std::int64_t n, std::int64_t n_pairs, const std::int32_t* i,
                              const std::int32_t* j, const float* theta) {
    return prh::caught([&] {
        std::vector<double> cosine(n_pairs), sine(n_pairs);
        std::vector<std::int32_t> alone(n);   // rows of no pair
        std::iota(alone.begin(), alone.end(), 0);
        for (std::int64_t p = 0; p < n_pairs; p++) {
            cosine[p] = std::cos(static_cast<double>(theta[p]));
            sine[p] = std::sin(static_cast<double>(theta[p]));
            alone[i[p]] = alone[j[p]] = -1;
        }
        alone.erase(std::remove(alone.begin(), alone.end(), -1), alone.end());
        const auto rotate_columns = [&](double* row) {
            for (std::int64_t p = 0; p < n_pairs; p++) {
                const double u = row[i[p]], w = row[j[p]];
                row[i[p]] = cosine[p] * u - sine[p] * w;
                row[j[p]] = sine[p] * u + cosine[p] * w;
            }
        };
        // A pair of rows, and the columns while the rows are in cache.
        const std::int64_t n_alone = static_cast<std::int64_t>(alone.size());
        prh::parallel_for(n_pairs + n_alone, kChunkFloats / n / 4 + 1, [&] {
            return [&](std::int64_t begin, std::int64_t end) {
                for (std::int64_t p = begin; p < end; p++) {
                    if (p >= n_pairs) {
                        rotate_columns(matrix + alone[p - n_pairs] * n);
                        continue;
                    }
                    double *const a = matrix + i[p] * n, *const b = matrix + j[p] * n;
                    for (std::int64_t c = 0; c < n; c++) {
                        const double u = a[c], w = b[c];
                        a[c] = cosine[p] * u - sine[p] * w;
                        b[c] = sine[p] * u + cosine[p] * w;
                    }
                    rotate_columns(a);
                    rotate_columns(b);
                }
            };
        });
    });
}

const char* prh_inverse_factor(double* gram, std::int64_t n, double* inverse) {
    return prh::caught([&] {
        std::fill_n(inverse, n * n, 0.0);
        for (std::int64_t j = 0; j < n; j++) {
            inverse[j * n + j] += 1;
            const double pivot = std::sqrt(gram[j * n + j]);
            for (std::int64_t k = 0; k <= j; k++) inverse[j * n + k] /= pivot;
            std::vector<double> factor(n);
            for (std::int64_t i = j + 1; i < n; i++) factor[i] = gram[i * n + j] / pivot;
            for (std::int64_t i = j + 1; i < n; i++) {
                for (std::int64_t k = j + 1; k <= i; k++) gram[i * n + k] -= factor[i] * factor[k];
                for (std::int64_t k = 0; k <= j; k++) inverse[i * n + k] -= factor[i] * inverse[j * n + k];
            }
        }
    });
}

const char* prh_match(const double* gain, std::int64_t n_rows, std::int64_t n_columns, bool is_symmetric,
                      std::int64_t n_rounds, std::int32_t* first, std::int32_t* second, std::int64_t* n_pairs) {
    return prh::caught([&] {
        constexpr std::int32_t kNone = -1, kTaken = -2;
        std::vector<std::int32_t> row_best(n_rows, kNone), column_best(n_columns, kNone);
        std::vector<std::int32_t> rows(n_rows), columns(n_columns);   // those left
        std::iota(rows.begin(), rows.end(), 0);
        std::iota(columns.begin(), columns.end(), 0);
        std::vector<double> most(n_columns);
        std::vector<std::int32_t> open;   // columns that look for their best row
        *n_pairs = 0;
        for (std::int64_t round = 0; round < n_rounds && !rows.empty() && !columns.empty(); round++) {
            open.clear();
            for (const std::int32_t column : columns)
                if (column_best[column] == kNone) open.push_back(column);
            std::fill(most.begin(), most.end(), -std::numeric_limits<double>::infinity());
            for (const std::int32_t row : rows) {
                const double* const gains = gain + row * n_columns;
                for (const std::int32_t column : open)
                    if (gains[column] > most[column]) {
                        most[column] = gains[column];
                        column_best[column] = row;
                    }
                if (row_best[row] != kNone) continue;
                std::int32_t best = columns.front();
                for (const std::int32_t column : columns)
                    if (gains[column] > gains[best]) best = column;
                row_best[row] = best;
            }
            const std::int64_t before = *n_pairs;
            for (const std::int32_t row : rows) {
                const std::int32_t column = row_best[row];
                // Symmetric but for rounding: so only rows choose, or one could be in two pairs.
                const std::int32_t its_best = is_symmetric ? row_best[column] : column_best[column];
                if (its_best == row && gain[row * n_columns + column] > 0 && (!is_symmetric || row < column)) {
                    first[*n_pairs] = row;
                    second[(*n_pairs)++] = column;
                }
            }
            if (*n_pairs == before) break;
            for (std::int64_t pair = before; pair < *n_pairs; pair++) {
                row_best[first[pair]] = column_best[second[pair]] = kTaken;
                if (is_symmetric) row_best[second[pair]] = column_best[first[pair]] = kTaken;
            }
            // Those whose best is taken look again; those taken look no more.
            const auto leave = [](auto& left, auto& best, const auto& others) {
                const auto is_taken = [&](std::int32_t one) { return best[one] == kTaken; };
                left.erase(std::remove_if(left.begin(), left.end(), is_taken), left.end());
                for (const std::int32_t one : left)
                    if (best[one] != kNone && others[best[one]] == kTaken) best[one] = kNone;
            };
            leave(rows, row_best, column_best);
            leave(columns, column_best, row_best);
        }
    });
}
