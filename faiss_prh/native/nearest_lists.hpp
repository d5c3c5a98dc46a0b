// The lists of the centroids nearest to some queries.
#pragma once

#include <algorithm>
#include <cstdint>
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
        few_.resize(scan_.n_lists + 1);   // one more than can be kept is written
        lists_.resize(scan_.n_lists + 1);
        probes_.resize(n * n_probes_);
        set_keys(n, z);
        for (std::int64_t q = 0; q < n; q++) order(keys_.data() + q * scan_.n_lists, probes_.data() + q * n_probes_);
    }
    const std::int64_t* row(std::int64_t q) const { return probes_.data() + q * n_probes_; }

  private:
    static constexpr std::int64_t kFew = 4;   // queries for which the squares of centroids do not pay

    struct Entry {
        float key;
        std::int32_t list;
    };

    // The lists of the least keys, of equal ones the first: as many as there are probes, which are no more than lists.
    void order(const float* keys, std::int64_t* probes) {
        const float bound = bound_of(keys);
        collect(keys, bound);
        const float least = *std::min_element(few_.begin(), few_.begin() + n_few_);
        const float scale = static_cast<float>(n_few_) / (bound - least);
        if (n_few_ >= n_probes_ && scale > 0 && scale < std::numeric_limits<float>::max())
            write_by_buckets(least, scale, probes);
        else   // all are equal, or some are no finite numbers
            write_by_sorting(keys, probes);
    }

    // A key that no fewer than n_probes are no greater than: the greatest of the least of as many parts.
    float bound_of(const float* keys) {
        least_.assign(keys, keys + n_probes_);
        for (std::int64_t first = n_probes_; first + n_probes_ <= scan_.n_lists; first += n_probes_)
            for (std::int64_t part = 0; part < n_probes_; part++)
                least_[part] = keys[first + part] < least_[part] ? keys[first + part] : least_[part];
        return *std::max_element(least_.begin(), least_.end());
    }

    void collect(const float* keys, float bound) {
        std::int64_t n = 0;
        float* const few = few_.data();
        std::int32_t* const lists = lists_.data();
        for (std::int64_t list = 0; list < scan_.n_lists; list++) {   // without a branch that nobody could foresee
            few[n] = keys[list];
            lists[n] = static_cast<std::int32_t>(list);
            n += keys[list] <= bound;
        }
        n_few_ = n;
    }

    // Into as many buckets as there are keys, and from there, almost in order, to their places. Sorting by comparisons would
    // guess wrong half of the time.
    void write_by_buckets(float least, float scale, std::int64_t* probes) {
        buckets_.resize(n_few_);
        ends_.assign(n_few_ + 2, 0);
        for (std::int64_t i = 0; i < n_few_; i++) {
            const auto bucket = static_cast<std::int64_t>((few_[i] - least) * scale);
            buckets_[i] = static_cast<std::int32_t>(std::min(bucket, n_few_));
            ends_[buckets_[i] + 1]++;
        }
        std::int64_t n_needed = 0;   // all buckets up to that of the last probe
        for (std::int64_t bucket = 0; bucket <= n_few_; bucket++) {
            ends_[bucket + 1] += ends_[bucket];
            if (n_needed < n_probes_) n_needed = ends_[bucket + 1];
        }
        entries_.resize(n_few_);
        for (std::int64_t i = 0; i < n_few_; i++) entries_[ends_[buckets_[i]]++] = {few_[i], lists_[i]};
        const auto is_less = [](const Entry& a, const Entry& b) { return a.key < b.key; };
        for (std::int64_t i = 1; i < n_needed; i++) put_in_order(entries_.data(), entries_.data() + i, entries_[i], is_less);
        for (std::int64_t p = 0; p < n_probes_; p++) probes[p] = entries_[p].list;
    }

    void write_by_sorting(const float* keys, std::int64_t* probes) {
        if (n_few_ < n_probes_)
            for (n_few_ = 0; n_few_ < scan_.n_lists; n_few_++) lists_[n_few_] = static_cast<std::int32_t>(n_few_);
        const auto is_less = [&](std::int32_t a, std::int32_t b) {
            return keys[a] < keys[b] || (keys[a] == keys[b] && a < b);
        };
        const auto begin = lists_.begin(), end = begin + n_probes_;
        std::nth_element(begin, end - 1, begin + n_few_, is_less);
        std::sort(begin, end, is_less);
        std::copy(begin, end, probes);
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
        scratch_.resize(kMostLanes * d);
        kernel.products(d, n, z, n_lists, scan_.centroids, keys_.data(), scratch_.data());
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
    std::int64_t n_few_ = 0;   // lists that may be among the nearest, and their keys
    std::vector<float> few_;
    std::vector<std::int32_t> lists_, buckets_, ends_;
    std::vector<Entry> entries_;
    std::vector<float> keys_, squares_, least_, scratch_;
    std::vector<std::int64_t> probes_;
};

}  // namespace prh
