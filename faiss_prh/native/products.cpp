// Products of matrices in double precision, and the second moments of vectors. Each sum is one thread's, from the first row
// to the last, so that it does not depend on how many threads there are.
#include "products.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "aligned.hpp"
#include "dispatch.hpp"
#include "failure.hpp"
#include "prh.h"
#include "threads.hpp"

namespace {

using prh::kGroup;
using prh::kMostGroups;

constexpr std::int64_t kRows = 256;               // of columns that stay in the cache
constexpr std::int64_t kPackedValues = 1 << 22;   // at a time
constexpr std::int64_t kLeastCost = 1 << 18;      // multiplications that are worth a thread

// Columns of a matrix in groups: of the first kRows rows all groups, then of the next rows. Zeros fill the last group. The
// last part has the rows that are left over, too.
class Packed {
  public:
    // row(r, to) writes a row, from the first on, and is called by several threads.
    template <class Row>
    Packed(std::int64_t n_rows, std::int64_t n_columns, const Row& row)
        : n_rows_(n_rows), n_groups_((n_columns + kGroup - 1) / kGroup), values_(n_rows * n_groups_ * kGroup) {
        prh::parallel_for(n_parts(), std::max<std::int64_t>(1, kLeastCost / 4 / (kRows * n_columns)), [&] {
            return [&, values = std::vector<double>(n_groups_ * kGroup)](std::int64_t begin, std::int64_t end) mutable {
                for (std::int64_t part = begin; part < end; part++)
                    for (std::int64_t r = 0; r < rows(part); r++) {
                        row(part * kRows + r, values.data());
                        for (std::int64_t group = 0; group < n_groups_; group++)
                            std::copy_n(&values[group * kGroup], kGroup, &values_[at(part, group) + r * kGroup]);
                    }
            };
        });
    }
    std::int64_t n_groups() const { return n_groups_; }
    std::int64_t n_parts() const { return std::max<std::int64_t>(1, n_rows_ / kRows); }
    std::int64_t rows(std::int64_t part) const { return part + 1 < n_parts() ? kRows : n_rows_ - part * kRows; }
    const double* group(std::int64_t part, std::int64_t number) const { return &values_[at(part, number)]; }

  private:
    std::int64_t at(std::int64_t part, std::int64_t group) const {
        return (part * kRows * n_groups_ + group * rows(part)) * kGroup;
    }
    std::int64_t n_rows_, n_groups_;
    prh::AlignedVector<double> values_;
};

// Groups of columns, from which one thread makes a square of the products.
struct Square {
    std::int64_t row, rows, column, columns;
};

// Writes the sums of products to `sums`, rows of `stride` values. If `is_symmetric`, some below the diagonal are left out.
void add_up(const Packed& left, const Packed& right, const Square& square, bool is_symmetric, double* sums,
            std::int64_t stride) {
    std::fill_n(sums, square.rows * kGroup * stride, 0.0);
    for (std::int64_t part = 0; part < left.n_parts(); part++)
        for (std::int64_t k = 0; k < square.columns; k += kMostGroups) {
            const std::int64_t count = std::min<std::int64_t>(kMostGroups, square.columns - k);
            const std::int64_t rows = is_symmetric ? std::min(square.rows, square.column + k + count - square.row) : square.rows;
            for (std::int64_t r = 0; r < rows; r++)
                prh::product_kernel().add(left.rows(part), left.group(part, square.row + r),
                                          right.group(part, square.column + k), static_cast<int>(count),
                                          sums + r * kGroup * stride + k * kGroup, stride);
        }
}

// Adds to `c`, of n rows of m values, the products of the columns of `left` and those of `right`. If both are the same, to
// what is on the diagonal and above it, and writes below what is above.
void add_products(const Packed& left, const Packed& right, double* c, std::int64_t n, std::int64_t m) {
    const bool is_symmetric = &left == &right;
    // Small ones, so that all threads have some; larger ones take less from memory.
    const std::int64_t side = left.n_groups() * right.n_groups() < (1 << 14) ? 6 : 12, stride = side * kGroup;
    std::vector<Square> squares;
    for (std::int64_t row = 0; row < left.n_groups(); row += side)
        for (std::int64_t column = is_symmetric ? row : 0; column < right.n_groups(); column += side)
            squares.push_back({row, std::min(side, left.n_groups() - row), column, std::min(side, right.n_groups() - column)});
    const std::int64_t cost = stride * stride * left.n_parts() * left.rows(0);
    prh::parallel_for(static_cast<std::int64_t>(squares.size()), std::max<std::int64_t>(1, kLeastCost / cost), [&] {
        return [&, sums = prh::AlignedVector<double>(stride * stride)](std::int64_t begin, std::int64_t end) mutable {
            for (std::int64_t number = begin; number < end; number++) {
                const Square& square = squares[number];
                add_up(left, right, square, is_symmetric, sums.data(), stride);
                const std::int64_t row = square.row * kGroup, column = square.column * kGroup;
                for (std::int64_t r = row; r < std::min(n, row + square.rows * kGroup); r++)
                    for (std::int64_t k = is_symmetric ? std::max(r, column) : column;
                         k < std::min(m, column + square.columns * kGroup); k++) {
                        c[r * m + k] += sums[(r - row) * stride + k - column];
                        if (is_symmetric) c[k * m + r] = c[r * m + k];
                    }
            }
        };
    });
}

}  // namespace

const char* prh_column_products(std::int64_t m, std::int64_t n_left, const double* left, std::int64_t n_right,
                                const double* right, double* c) {
    return prh::caught([&] {
        const bool is_symmetric = left == right && n_left == n_right;
        const std::int64_t step = std::max<std::int64_t>(1, kPackedValues / kRows / (n_left + n_right)) * kRows;
        std::fill_n(c, n_left * n_right, 0.0);
        for (std::int64_t first = 0; first < m; first += step) {
            const auto packed = [&](std::int64_t n, const double* x) {
                return Packed(std::min(step, m - first), n,
                              [&](std::int64_t r, double* to) { std::copy_n(x + (first + r) * n, n, to); });
            };
            const Packed columns = packed(n_left, left);
            if (is_symmetric)
                add_products(columns, columns, c, n_left, n_left);
            else
                add_products(columns, packed(n_right, right), c, n_left, n_right);
        }
    });
}

const char* prh_moments_add(std::int64_t m, std::int64_t n, const float* x, std::int64_t count, double* mean,
                            double* scatter) {
    return prh::caught([&] {
        const std::int64_t n_parts = (m + kRows - 1) / kRows;
        std::vector<double> sums(n_parts * n);
        prh::parallel_for(n_parts, std::max<std::int64_t>(1, kLeastCost / (kRows * n)), [&] {
            return [&](std::int64_t begin, std::int64_t end) {
                for (std::int64_t r = begin * kRows; r < std::min(m, end * kRows); r++)
                    for (std::int64_t k = 0; k < n; k++) sums[r / kRows * n + k] += x[r * n + k];
            };
        });
        const double total = static_cast<double>(count) + static_cast<double>(m);
        const double weight = std::sqrt(static_cast<double>(count) * static_cast<double>(m) / total);
        std::vector<double> own(n), apart(n);
        for (std::int64_t k = 0; k < n; k++) {
            for (std::int64_t part = 0; part < n_parts; part++) own[k] += sums[part * n + k];
            own[k] /= static_cast<double>(m);
            apart[k] = own[k] - mean[k];
        }
        // As if there were one vector more, what the distance of the means adds (Chan et al., 1979).
        const Packed columns(m + 1, n, [&](std::int64_t r, double* to) {
            if (r < m)
                for (std::int64_t k = 0; k < n; k++) to[k] = x[r * n + k] - own[k];
            else
                for (std::int64_t k = 0; k < n; k++) to[k] = apart[k] * weight;
        });
        add_products(columns, columns, scatter, n, n);
        for (std::int64_t k = 0; k < n; k++) mean[k] += apart[k] * (static_cast<double>(m) / total);
    });
}
