// Learning the angles of layers together: the passes over the sample, spread over threads. What is added up is added up
// in an order that does not depend on them.
#include <algorithm>
#include <cmath>
#include <vector>

#include "dispatch.hpp"
#include "failure.hpp"
#include "prh.h"
#include "threads.hpp"

namespace {

using prh::kTile;

constexpr std::int64_t kMostSums = 32;     // parts whose slopes are added up on their own
constexpr std::int64_t kRange = 256;       // vectors whose partners are looked up at a time
constexpr std::int64_t kLeastCost = 1 << 19;

class Turned {
  public:
    Turned(std::int64_t count, const std::int32_t* i, const std::int32_t* j, const float* theta)
        : cosine_(count), sine_(count), turns_{count, i, j, cosine_.data(), sine_.data()} {
        for (std::int64_t t = 0; t < count; t++) {
            cosine_[t] = static_cast<float>(std::cos(static_cast<double>(theta[t])));
            sine_[t] = static_cast<float>(std::sin(static_cast<double>(theta[t])));
        }
    }
    operator const prh::Turns&() const { return turns_; }

  private:
    std::vector<float> cosine_, sine_;
    prh::Turns turns_;
};

// Calls work(item) for 0 .. n, where an item takes `cost` operations: threads are started only for what is worth it.
template <class Work>
void for_each(std::int64_t n, std::int64_t cost, const Work& work) {
    prh::parallel_for(n, kLeastCost / std::max<std::int64_t>(1, cost) + 1, [&] {
        return [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t item = begin; item < end; item++) work(item);
        };
    });
}

// The same with room for `n_floats` floats of each thread's own: work(item, room).
template <class Work>
void for_each_in_room(std::int64_t n, std::int64_t cost, std::int64_t n_floats, const Work& work) {
    prh::parallel_for(n, kLeastCost / std::max<std::int64_t>(1, cost) + 1, [&] {
        return [&, room = std::vector<float>(n_floats)](std::int64_t begin, std::int64_t end) mutable {
            for (std::int64_t item = begin; item < end; item++) work(item, room.data());
        };
    });
}

std::int64_t tiles_of(std::int64_t m) {
    return (m + kTile - 1) / kTile;
}

// The first dimension of each slab.
std::vector<std::int64_t> slabs_of(std::int64_t n) {
    std::vector<std::int64_t> slabs;
    for (std::int64_t first = 0; first < n; first += prh::slab_width(n, first)) slabs.push_back(first);
    return slabs;
}

}  // namespace

const char* prh_tiles_turn(std::int64_t n, std::int64_t n_tiles, std::int64_t n_rotations, const std::int32_t* i,
                           const std::int32_t* j, const float* theta, const float* x, float* y) {
    return prh::caught([&] {
        const Turned turns(n_rotations, i, j, theta);
        for_each(n_tiles, (n + n_rotations) * kTile, [&](std::int64_t tile) {
            prh::tile_kernel().turn(turns, n, x + tile * n * kTile, y + tile * n * kTile);
        });
    });
}

const char* prh_tiles_slopes(std::int64_t n, std::int64_t n_tiles, std::int64_t n_rotations, const std::int32_t* i,
                             const std::int32_t* j, const float* theta, float* y, float* g, double* slopes) {
    return prh::caught([&] {
        const Turned turns(n_rotations, i, j, theta);
        const std::int64_t n_parts = std::min(n_tiles, kMostSums);
        std::vector<double> parts(n_parts * n_rotations);
        const std::int64_t cost = n_tiles / n_parts * n_rotations * kTile * 4;
        for_each_in_room(n_parts, cost, 8 * n_rotations, [&](std::int64_t part, float* sums) {
            std::fill_n(sums, 8 * n_rotations, 0.0f);
            for (std::int64_t tile = part * n_tiles / n_parts; tile < (part + 1) * n_tiles / n_parts; tile++)
                prh::tile_kernel().slopes(turns, y + tile * n * kTile, g + tile * n * kTile, sums);
            for (std::int64_t t = 0; t < n_rotations; t++)
                for (int k = 0; k < 8; k++) parts[part * n_rotations + t] += sums[8 * t + k];
        });
        std::fill_n(slopes, n_rotations, 0.0);
        for (std::int64_t part = 0; part < n_parts; part++)
            for (std::int64_t t = 0; t < n_rotations; t++) slopes[t] += parts[part * n_rotations + t];
    });
}

const char* prh_tiles_multiply(std::int64_t n, std::int64_t n_tiles, const float* matrix, const float* x, float* y) {
    return prh::caught([&] {
        for_each(n_tiles, n * n * kTile, [&](std::int64_t tile) {
            prh::tile_kernel().multiply(n, matrix, x + tile * n * kTile, y + tile * n * kTile);
        });
    });
}

const char* prh_tiles_outer(std::int64_t n, std::int64_t n_tiles, const float* g, const float* x, double* products) {
    return prh::caught([&] {
        const std::int64_t n_parts = std::min(n_tiles, kMostSums);
        std::vector<double> parts(n_parts * n * n);
        const std::int64_t most_tiles = n_tiles / std::max<std::int64_t>(1, n_parts) + 1;
        for_each_in_room(n_parts, most_tiles * n * n * kTile, (n + kTile) * most_tiles * kTile, [&](std::int64_t part, float* room) {
            const std::int64_t first = part * n_tiles / n_parts, end = (part + 1) * n_tiles / n_parts;
            prh::tile_kernel().outer(n, end - first, g + first * n * kTile, x + first * n * kTile, room,
                                      &parts[part * n * n]);
        });
        std::fill_n(products, n * n, 0.0);
        for (std::int64_t part = 0; part < n_parts; part++)
            for (std::int64_t k = 0; k < n * n; k++) products[k] += parts[part * n * n + k];
    });
}

const char* prh_tiles_signs(std::int64_t n, std::int64_t n_tiles, const float* y, float magnitude, float* g,
                            double* magnitudes) {
    return prh::caught([&] {
        std::vector<double> of_tile(n_tiles);
        for_each(n_tiles, n * kTile, [&](std::int64_t tile) {
            of_tile[tile] = prh::joint_kernel().signs(n, y + tile * n * kTile, magnitude, g + tile * n * kTile);
        });
        *magnitudes = 0;
        for (const double part : of_tile) *magnitudes += part;
    });
}

const char* prh_soft_signs(std::int64_t n, std::int64_t m, const float* y, float softness, float* signs,
                           double* magnitudes) {
    return prh::caught([&] {
        std::vector<double> of_tile(tiles_of(m));
        for_each(tiles_of(m), n * kTile * 8, [&](std::int64_t tile) {
            of_tile[tile] = prh::joint_kernel().soft_signs(n, m, tile * kTile, y + tile * n * kTile, 1 / softness, signs);
        });
        *magnitudes = 0;
        for (const double part : of_tile) *magnitudes += part;
    });
}

const char* prh_sign_products(std::int64_t n, std::int64_t m, const float* signs, std::int64_t k,
                              const std::int32_t* partners, double* products) {
    return prh::caught([&] {
        const prh::Partners all{m, k, partners, nullptr, nullptr, nullptr};
        const auto slabs = slabs_of(n);
        const std::int64_t n_slabs = static_cast<std::int64_t>(slabs.size()), n_ranges = (m + kRange - 1) / kRange;
        std::vector<float> parts(n_slabs * m * k);
        for_each(n_slabs * n_ranges, kRange * k * prh::kWidestSlab, [&](std::int64_t item) {
            const std::int64_t slab = item / n_ranges, begin = item % n_ranges * kRange;
            prh::joint_kernel().products(n, slabs[slab], signs, all, begin, std::min(m, begin + kRange),
                                         &parts[slab * m * k]);
        });
        std::fill_n(products, m * k, 0.0);
        for (std::int64_t slab = 0; slab < n_slabs; slab++)
            for (std::int64_t pair = 0; pair < m * k; pair++) products[pair] += parts[slab * m * k + pair];
    });
}

const char* prh_sign_slopes(std::int64_t n, std::int64_t m, const float* signs, std::int64_t k,
                            const std::int32_t* partners, const std::int64_t* ends, const std::int32_t* incident,
                            const std::int32_t* owners, const float* weights, float softness, float magnitude, const float* y, float* g) {
    return prh::caught([&] {
        const prh::Partners all{m, k, partners, ends, incident, owners};
        const auto slabs = slabs_of(n);
        const std::int64_t n_tiles = tiles_of(m);
        for_each(static_cast<std::int64_t>(slabs.size()) * n_tiles, 2 * k * kTile * prh::kWidestSlab, [&](std::int64_t item) {
            const std::int64_t first = slabs[item / n_tiles], tile = item % n_tiles;
            const std::int64_t at = (tile * n + first) * kTile;
            prh::joint_kernel().sign_slopes(n, first, signs, all, weights, 1 / softness, magnitude, tile * kTile, y + at,
                                            g + at);
        });
    });
}
