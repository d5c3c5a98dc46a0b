// The lists of the centroids nearest to some queries.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "best.hpp"
#include "dispatch.hpp"
#include "prh.h"

namespace prh {

class NearestLists {
  public:
    NearestLists(const PrhScan& scan, std::int64_t n_probes) : scan_(scan), n_probes_(n_probes) {}

    void find(std::int64_t n, const float* z) {
        keys_.resize(n * scan_.n_lists);
        probes_.resize(n * n_probes_);
        set_keys(n, z);
        for (std::int64_t q = 0; q < n; q++) {
            order(keys_.data() + q * scan_.n_lists);
            for (std::int64_t p = 0; p < n_probes_; p++) probes_[q * n_probes_ + p] = order_[p].list;
        }
    }
    const std::int64_t* row(std::int64_t q) const { return probes_.data() + q * n_probes_; }

  private:
    static constexpr std::int64_t kFew = 4;         // queries for which the squares of centroids do not pay
    static constexpr std::int64_t kFewProbes = 32;

    struct Entry {
        float key;
        std::int32_t list;
        bool operator<(const Entry& other) const {
            return key < other.key || (key == other.key && list < other.list);
        }
    };

    // The least keys first: as many of them as there are probes, which are no more than lists.
    void order(const float* keys) {
        order_.clear();
        if (n_probes_ > kFewProbes) {
            for (std::int64_t list = 0; list < scan_.n_lists; list++)
                order_.push_back({keys[list], static_cast<std::int32_t>(list)});
            const auto end = order_.begin() + n_probes_;
            std::nth_element(order_.begin(), end - 1, order_.end());
            std::sort(order_.begin(), end);
            return;
        }
        float worst = std::numeric_limits<float>::infinity();
        for (std::int64_t list = 0; list < scan_.n_lists; list++) {
            const bool is_full = static_cast<std::int64_t>(order_.size()) == n_probes_;
            if (is_full && !(keys[list] < worst)) continue;
            if (is_full) order_.pop_back();
            order_.push_back({keys[list], static_cast<std::int32_t>(list)});
            move_to_its_place(order_.data(), &order_.back(), std::less<Entry>{});
            worst = order_.back().key;
        }
    }

    // What is least for the nearest: of many queries by matrix products, which need the centroids' squares.
    void set_keys(std::int64_t n, const float* z) {
        const ScanKernel& kernel = scan_kernel();
        const std::int64_t d = scan_.bits, n_lists = scan_.n_lists;
        if (n < kFew && !scan_.is_product) {
            for (std::int64_t q = 0; q < n; q++)
                for (std::int64_t list = 0; list < n_lists; list++)
                    keys_[q * n_lists + list] = kernel.square_distance(d, z + q * d, scan_.centroids + list * d);
            return;
        }
        kernel.products(d, n, z, n_lists, scan_.centroids, keys_.data());
        if (squares_.empty())
            for (std::int64_t list = 0; list < n_lists; list++) {
                const float* const c = scan_.centroids + list * d;
                squares_.push_back(scan_.is_product ? 0 : kernel.dot(d, c, c));
            }
        const float factor = scan_.is_product ? -1 : -2;
        for (std::int64_t q = 0; q < n; q++)
            for (std::int64_t list = 0; list < n_lists; list++) {
                float& key = keys_[q * n_lists + list];
                key = squares_[list] + factor * key;
            }
    }

    const PrhScan& scan_;
    const std::int64_t n_probes_;
    std::vector<float> keys_, squares_;
    std::vector<Entry> order_;
    std::vector<std::int64_t> probes_;
};

}  // namespace prh
