// The nearest of vectors of whole numbers, and the largest of products.
#include <algorithm>
#include <limits>
#include <list>
#include <numeric>
#include <vector>

#include "aligned.hpp"
#include "dispatch.hpp"
#include "failure.hpp"
#include "prh.h"
#include "threads.hpp"

namespace {

using prh::kPanel;
using prh::kStrip;

constexpr std::int64_t kBlock = 192;   // vectors that are compared with as many others while they stay in the cache
static_assert(kBlock % kPanel == 0, "a block has a rest");
constexpr std::int64_t kLeastCost = 1 << 19;   // products that are worth a thread
constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

// Keys of the nearest, in ascending order: a distance, and a number in the lower 32 bits.
class Nearest {
  public:
    Nearest(std::int64_t* keys, std::int64_t k) : keys_(keys), k_(k) {}
    float most() const { return static_cast<float>(keys_[k_ - 1] >> 32); }
    void add(float distance, std::int64_t number) { add(static_cast<std::int64_t>(distance) << 32 | number); }
    void add(std::int64_t key) {
        if (key >= keys_[k_ - 1]) return;
        std::int64_t place = k_ - 1;
        for (; place > 0 && key < keys_[place - 1]; place--) keys_[place] = keys_[place - 1];
        keys_[place] = key;
    }

  private:
    std::int64_t* keys_;
    std::int64_t k_;
};

// The keys that one thread finds of n vectors.
class Found {
  public:
    // There is room to read `most` of what fills the last panel.
    Found(std::int64_t n, std::int64_t k)
        : k_(k), keys_(n * k, kNone), most_(n + kPanel, Nearest(keys_.data(), k).most()) {}
    const float* most() const { return most_.data(); }
    void add(std::int64_t vector, float distance, std::int64_t number) {
        Nearest of_vector(&keys_[vector * k_], k_);
        of_vector.add(distance, number);
        most_[vector] = of_vector.most();
    }
    void add_to(std::int64_t* keys) const {
        for (std::size_t at = 0; at < keys_.size(); at++) Nearest(keys + at / k_ * k_, k_).add(keys_[at]);
    }

  private:
    std::int64_t k_;
    std::vector<std::int64_t> keys_;
    std::vector<float> most_;
};

std::vector<float> squares_of(std::int64_t n, std::int64_t d, const float* x) {
    constexpr std::int64_t kSums = 16;   // side by side, as the order does not matter
    std::vector<float> squares(n);
    for (std::int64_t v = 0; v < n; v++, x += d) {
        float sums[kSums] = {};
        std::int64_t k = 0;
        for (; k + kSums <= d; k += kSums)
            for (std::int64_t s = 0; s < kSums; s++) sums[s] += x[k + s] * x[k + s];
        for (; k < d; k++) sums[0] += x[k] * x[k];
        squares[v] = std::accumulate(sums, sums + kSums, 0.0f);
    }
    return squares;
}

// Vectors, in panels. What the last one lacks is infinitely far away.
struct Panels {
    Panels(std::int64_t m, std::int64_t d, const float* x) : squares(squares_of(m, d, x)) {
        const std::int64_t n_panels = (m + kPanel - 1) / kPanel;
        squares.resize(n_panels * kPanel, std::numeric_limits<float>::infinity());
        values.resize(n_panels * kPanel * d);
        prh::parallel_for(n_panels, 16, [&] {
            return [&](std::int64_t begin, std::int64_t end) {
                for (std::int64_t v = begin * kPanel; v < end * kPanel; v++)
                    for (std::int64_t k = 0; k < d; k++)
                        values[(v / kPanel * d + k) * kPanel + v % kPanel] = v < m ? x[v * d + k] : 0;
            };
        });
    }
    std::vector<float> squares;
    prh::AlignedVector<float> values;
};

// The first vectors of two blocks.
struct Pair {
    std::int64_t row, column;
};

class Comparison {
  public:
    Comparison(std::int64_t d, std::int64_t n, const float* x, std::int64_t m, const float* others)
        : d_(d), n_(n), m_(m), x_(x), is_symmetric_(x == others && n == m), panels_(m, d, others),
          row_squares_(is_symmetric_ ? panels_.squares : squares_of(n, d, x)), nothing_(panels_.squares.size(), -1) {}

    std::vector<Pair> pairs() const {
        std::vector<Pair> all;
        for (std::int64_t row = 0; row < n_; row += kBlock)
            for (std::int64_t column = is_symmetric_ ? row : 0; column < m_; column += kBlock)
                all.push_back({row, column});
        return all;
    }

    void add_to(Found& found, const Pair& pair) const {
        const bool is_for_both = is_symmetric_ && pair.row != pair.column;
        const std::int64_t end_row = std::min(n_, pair.row + kBlock), end_column = std::min(m_, pair.column + kBlock);
        prh::NearPair candidates[kStrip * kPanel];
        for (std::int64_t row = pair.row; row < end_row; row += kStrip)
            for (std::int64_t column = pair.column; column < end_column; column += kPanel) {
                const std::int64_t count = prh::near_kernel().candidates(
                        d_, std::min<std::int64_t>(kStrip, end_row - row), x_ + row * d_, &row_squares_[row],
                        found.most() + row, &panels_.values[column * d_], &panels_.squares[column],
                        (is_for_both ? found.most() : nothing_.data()) + column, candidates);
                for (std::int64_t at = 0; at < count; at++) {
                    const prh::NearPair& candidate = candidates[at];
                    const std::int64_t r = row + candidate.row, c = column + candidate.column;
                    found.add(r, candidate.distance, c);
                    if (is_for_both) found.add(c, candidate.distance, r);
                }
            }
    }

  private:
    std::int64_t d_, n_, m_;
    const float* x_;
    bool is_symmetric_;   // then a distance serves both
    Panels panels_;
    std::vector<float> row_squares_, nothing_;
};

}  // namespace

const char* prh_nearest(std::int64_t d, std::int64_t n, const float* x, std::int64_t m, const float* others,
                        std::int64_t k, std::int64_t* keys) {
    return prh::caught([&] {
        const Comparison comparison(d, n, x, m, others);
        const std::vector<Pair> pairs = comparison.pairs();
        std::list<Found> of_threads;
        prh::parallel_for(static_cast<std::int64_t>(pairs.size()), kLeastCost / (kBlock * kBlock * d) + 1, [&] {
            return [&, &found = of_threads.emplace_back(n, k)](std::int64_t begin, std::int64_t end) {
                for (std::int64_t pair = begin; pair < end; pair++) comparison.add_to(found, pairs[pair]);
            };
        });
        std::fill_n(keys, n * k, kNone);
        for (const Found& found : of_threads) found.add_to(keys);
    });
}

const char* prh_nearer(std::int64_t n, std::int64_t m, const float* products, const float* own, const float* norms,
                       std::int64_t k, std::int64_t* keys) {
    return prh::caught([&] {
        constexpr std::int64_t kColumns = 128;   // after which a row's own distance is looked at again
        prh::parallel_for(n, 16, [&] {
            return [&](std::int64_t begin, std::int64_t end) {
                std::int32_t places[kColumns];
                for (std::int64_t row = begin; row < end; row++) {
                    Nearest of_row(keys + row * k, k);
                    std::fill_n(keys + row * k, k, kNone);
                    const float* const of_these = products + row * m;
                    for (std::int64_t first = 0; first < m; first += kColumns) {
                        const std::int64_t found = prh::near_kernel().within(of_these + first, norms + first, own[row], of_row.most(),
                                                                             std::min(kColumns, m - first), places);
                        for (std::int64_t at = 0; at < found; at++) {
                            const std::int64_t c = first + places[at];
                            of_row.add(own[row] + norms[c] - 2.0f * of_these[c], c);
                        }
                    }
                }
            };
        });
    });
}
