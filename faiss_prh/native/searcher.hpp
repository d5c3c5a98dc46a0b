// What one thread needs to search for one query after the other.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "best.hpp"
#include "dispatch.hpp"
#include "faiss_abi.hpp"
#include "prh.h"

namespace prh {

constexpr int kFirstBlock = 32;                  // codes at first, while there is no threshold yet
constexpr std::size_t kAhead = 12;               // vectors that are fetched before they are needed
constexpr std::int64_t kPrefetchedBytes = 256;   // of each; the processor goes on by itself
constexpr std::int64_t kPrefetchedList = 1024;   // bytes of the next list; a scan fetches the others
constexpr std::int64_t kLine = 64;

// How many standard deviations of the estimate's error a vector may be better than its estimate.
constexpr float kSure = 3;

struct List {
    const std::uint8_t* codes;
    const std::int64_t* ids;   // null: they are the positions, or there is no filter that asks for them
    std::int64_t n;

    std::int64_t row(std::int64_t at) const { return ids ? ids[at] : at; }
};

inline List list_of(const PrhScan& scan, std::int64_t number) {
    if (!scan.lists) return {scan.codes, nullptr, scan.n_codes};
    const auto* const lists = static_cast<const faiss_abi::InvertedLists*>(scan.lists);
    const auto n = static_cast<std::int64_t>(lists->list_size(number));
    if (!n) return {nullptr, nullptr, 0};
    return {lists->codes(number), scan.selector ? lists->ids(number) : nullptr, n};
}

// Where a code is, as Faiss's own search of pairs has it. Without lists it is the position.
inline std::int64_t place_of(std::int64_t list, std::int64_t at) {
    return list << 32 | at;
}

inline std::int64_t row_of(const PrhScan& scan, std::int64_t place) {
    if (!scan.lists) return place;
    return static_cast<const faiss_abi::InvertedLists*>(scan.lists)->ids(place >> 32)[place & 0xffffffff];
}

struct Query {
    const float* z;              // what the transforms make of it
    const float* x;              // itself
    const std::int64_t* probes;  // null: still to be found
};

class Searcher {
  public:
    Searcher(const PrhScan& scan, std::int64_t n_probes, faiss::DistanceComputer* computer)
        : scan_(scan), kernel_(scan_kernel()), n_probes_(n_probes), computer_(computer),
          n_bytes_((scan.bits + 7) / 8), r_(8 * n_bytes_), code_(n_bytes_), promising_(kernel_) {}

    std::vector<Found>& k_best(Query query, std::int64_t k) {
        find_lists(query);
        if (scan_.centroids) {
            if (!scan_.vectors) {
                best_.start(k);
                estimate_all(query, InOrder{best_});
                return best_.sorted();
            }
            promising_.start(std::max(k, scan_.shortlist));
            estimate_all(query, promising_);
            promising_.write(shortlist_);
        } else {
            find_nearest(query, scan_.vectors || scan_.beside ? std::max(k, scan_.shortlist) : k);
        }
        return ranked(query, k);
    }

    // The k best of some rows.
    std::vector<Found>& k_best_of(const Query& query, std::int64_t n, const std::int64_t* rows, std::int64_t k) {
        shortlist_.clear();
        for (std::int64_t at = 0; at < n; at++)
            if (is_there(rows[at])) shortlist_.push_back({0, 0, rows[at], scan_.codes + rows[at] * scan_.code_size});
        return ranked(query, k);
    }

    std::vector<Found>& within(Query query, float radius) {
        find_lists(query);
        within_.clear();
        estimate_all(query, Within{within_, radius});
        return within_;
    }

  private:
    // What estimate_all() fills, beside a Shortlist.
    struct InOrder {
        Best& best;
        float threshold() const { return best.threshold(); }
        void add(float distance, float, std::int64_t place) { best.add({distance, place}); }
        void tighten() {}
    };
    struct Within {
        std::vector<Found>& found;
        float radius;
        float threshold() const { return radius; }
        void add(float distance, float, std::int64_t place) { found.push_back({distance, place}); }
        void tighten() {}
    };

    // The lists to search, if they are those of the nearest codes: of equally near ones the first.
    void find_lists(Query& query) {
        if (!scan_.centroids) set_code(query);
        if (!scan_.coarse || query.probes) return;
        nearest_.start(n_probes_, 8 * n_bytes_);
        scan_near({code_.data(), n_bytes_, n_bytes_}, 0, {scan_.coarse, nullptr, scan_.n_lists}, false);
        shortlist_.swap(nearest_.all());
        std::sort(shortlist_.begin(), shortlist_.end(), IsBetter{});
        probes_.assign(n_probes_, -1);
        for (std::size_t p = 0; p < shortlist_.size(); p++) probes_[p] = shortlist_[p].place;
        query.probes = probes_.data();
    }

    // The signs of the query; for inner products, halfway between the query centred and not.
    void set_code(const Query& query) {
        const float* z = query.z;
        if (scan_.is_product && scan_.offset) {
            for (std::int64_t i = 0; i < scan_.bits; i++) r_[i] = z[i] - scan_.offset[i] / 2;
            z = r_.data();
        }
        kernel_.residual(scan_.bits, z, nullptr, r_.data(), code_.data());
    }

    // Adds what has an estimate below the threshold in the lists of residuals.
    template <class Kept>
    void estimate_all(const Query& query, Kept&& kept) {
        const bool is_product = scan_.is_product;
        Residual residual{};
        if (is_product) residual = kernel_.residual(scan_.bits, query.z, nullptr, r_.data(), code_.data());
        const float factor = is_product ? 1 : 2;
        const float constant = is_product ? kernel_.dot(scan_.bits, query.z, scan_.offset) : 0;
        Estimate estimate{};
        estimate.square = is_product ? 0 : 1;
        estimate.angle = static_cast<float>(M_PI / static_cast<double>(scan_.bits));
        estimate.margin = scan_.margin / 2;
        estimate.low = scan_.low;
        estimate.step = scan_.step;
        estimate.reach = factor * scan_.reach;
        estimate.r = r_.data();
        int block = kFirstBlock;
        // Bits beyond the dimensions depend on the others.
        const auto n_values = static_cast<float>(std::min(scan_.bits, scan_.d));
        const float deviation = std::sqrt(static_cast<float>(M_PI_2 - 1) / n_values);
        // Before an exact distance, what is a little worse than the threshold may still be better.
        const float sure = scan_.vectors && scan_.is_isometric ? kSure * deviation : std::numeric_limits<float>::infinity();
        const CodeQuery codes{code_.data(), n_bytes_, scan_.code_size};
        for_each_list(query, [&](std::int64_t number, const List& list) {
            const float* const centroid = scan_.centroids + number * scan_.bits;
            if (is_product) {
                estimate.base = constant - kernel_.dot(scan_.bits, query.z, centroid);
            } else {
                residual = kernel_.residual(scan_.bits, query.z, centroid, r_.data(), code_.data());
                estimate.base = residual.squares;
            }
            estimate.sum = residual.sum;
            estimate.product = factor * std::sqrt(residual.squares);
            for (std::int64_t first = 0; first < list.n;) {
                const int n = static_cast<int>(std::min<std::int64_t>(block, list.n - first));
                const std::uint8_t* const begin = list.codes + first * scan_.code_size;
                kept.tighten();
                const int count = kernel_.promising(codes, estimate, begin, n, kept.threshold(), estimates_, positions_);
                for (int p = 0; p < count; p++) {
                    const std::int64_t at = first + positions_[p];
                    if (!(estimates_[p] < kept.threshold()) || !is_allowed(list, at)) continue;   // it has become less
                    const float slack =
                        scan_.vectors ? slack_of(estimate, sure, list.codes[at * scan_.code_size + n_bytes_]) : 0;
                    kept.add(estimates_[p], slack, place_of(number, at));
                }
                first += n;
                block = std::min(2 * block, kBlock);
            }
        });
    }

    // How much better than its estimate a vector may be, by the errors of its signs and of the byte for its norm. The first
    // and the last byte may stand for any norm beyond them.
    float slack_of(const Estimate& estimate, float sure, std::uint8_t byte) const {
        if (byte == 0 || byte == 255) return std::numeric_limits<float>::infinity();
        const float length = scan_.low + scan_.step * byte;
        return sure * estimate.product * length + scan_.step * (estimate.square * length + estimate.product / 2);
    }

    void find_nearest(const Query& query, std::int64_t k) {
        nearest_.start(k, 8 * n_bytes_);
        const CodeQuery codes{code_.data(), n_bytes_, scan_.code_size};
        for_each_list(query, [&](std::int64_t number, const List& list) { scan_near(codes, number, list, true); });
        shortlist_.swap(nearest_.all());
    }

    void scan_near(const CodeQuery& codes, std::int64_t number, const List& list, bool is_filtered) {
        std::int32_t distances[kBlock];
        for (std::int64_t first = 0; first < list.n; first += kBlock) {
            const std::uint8_t* const block = list.codes + first * codes.stride;
            const int n = static_cast<int>(std::min<std::int64_t>(kBlock, list.n - first));
            const int count = kernel_.near(codes, block, n, nearest_.threshold(), distances, positions_);
            for (int p = 0; p < count; p++) {
                const int in_block = positions_[p];
                const std::int64_t at = first + in_block;
                if (distances[in_block] < nearest_.threshold() && (!is_filtered || is_allowed(list, at)))
                    nearest_.add(distances[in_block], place_of(number, at), block + in_block * codes.stride);
            }
        }
    }

    template <class Work>
    void for_each_list(const Query& query, const Work& work) {
        std::int64_t n_scanned = 0;
        Probe next = probe(query, 0);
        for (std::int64_t p = 0; p < n_probes_; p++) {
            const Probe now = next;
            next = probe(query, p + 1);
            for (std::int64_t at = 0; at < std::min(next.list.n * scan_.code_size, kPrefetchedList); at += kLine)
                __builtin_prefetch(next.list.codes + at);
            if (now.list.n) work(now.number, now.list);
            n_scanned += now.list.n;
            if (scan_.max_codes && n_scanned >= scan_.max_codes) break;
        }
    }

    struct Probe {
        std::int64_t number;
        List list;   // empty where the quantizer found no more
    };

    Probe probe(const Query& query, std::int64_t p) const {
        const std::int64_t number = p >= n_probes_ ? -1 : scan_.lists ? query.probes[p] : 0;
        if (number < 0 || number >= scan_.n_lists) return {-1, {nullptr, nullptr, 0}};
        return {number, list_of(scan_, number)};
    }

    bool is_allowed(const List& list, std::int64_t at) const {
        if (!scan_.selector) return true;
        const std::int64_t row = list.row(at);
        if (scan_.ids && (row < 0 || row >= scan_.n_ids)) return false;   // as is_there()
        return static_cast<const faiss::IDSelector*>(scan_.selector)->is_member(scan_.ids ? scan_.ids[row] : row);
    }

    std::vector<Found>& ranked(const Query& query, std::int64_t k) {
        best_.start(k);
        if (!scan_.vectors && !scan_.beside) {
            for (const Candidate& one : shortlist_) best_.add({one.distance, one.place});
            return best_.sorted();
        }
        const bool may_skip = scan_.vectors && scan_.centroids && scan_.is_isometric;
        if (may_skip && static_cast<std::int64_t>(shortlist_.size()) > k)   // those first that leave fewest to the others
            std::nth_element(shortlist_.begin(), shortlist_.begin() + k, shortlist_.end(), IsBetter{});
        rows_.resize(shortlist_.size());
        for (std::size_t s = 0; s < rows_.size(); s++) rows_[s] = row_of(scan_, shortlist_[s].place);
        if (scan_.vectors)
            rank_by_vectors(query, may_skip);
        else
            rank_by_bytes(query);
        return best_.sorted();
    }

    // Ids of a list that are no rows of what ranks them come from a forged file, or from behind the index's back.
    bool is_there(std::int64_t row) const { return row >= 0 && row < scan_.n_rows; }

    // But for those that cannot be among the k best, at best.
    void rank_by_vectors(const Query& query, bool may_skip) {
        if (computer_) computer_->set_query(query.x);
        for (std::size_t s = 0; s < shortlist_.size(); s++) {
            if (s + kAhead < rows_.size()) prefetch(rows_[s + kAhead]);
            const Candidate& one = shortlist_[s];
            if (may_skip && one.at_best() >= best_.threshold()) continue;
            if (!is_there(rows_[s])) continue;
            const float distance = exact(query, rows_[s]);
            if (distance < best_.threshold()) best_.add({distance, one.place});
        }
    }

    void prefetch(std::int64_t row) const {
        if (!is_there(row)) return;   // its address could not even be computed
        const std::int64_t size = std::min(scan_.vector_size, kPrefetchedBytes);
        for (std::int64_t at = 0; at < size; at += kLine) __builtin_prefetch(scan_.vectors + row * scan_.vector_size + at);
    }

    float exact(const Query& query, std::int64_t row) const {
        if (computer_) return scan_.is_product ? -(*computer_)(row) : (*computer_)(row);
        const auto* const vector = reinterpret_cast<const float*>(scan_.vectors + row * scan_.vector_size);
        return scan_.is_product ? -kernel_.dot(scan_.d, query.x, vector)
                                : kernel_.square_distance(scan_.d, query.x, vector);
    }

    void rank_by_bytes(const Query& query) {
        std::copy(query.z, query.z + scan_.bits, r_.begin());
        float sum = 0, squares = 0;
        for (const float value : r_) {
            sum += value;
            squares += value * value;
        }
        const float offset = scan_.is_product ? kernel_.dot(scan_.bits, scan_.offset, scan_.offset) -
                                                    kernel_.dot(scan_.bits, query.z, scan_.offset)
                                              : 0;
        for (std::size_t s = 0; s < shortlist_.size(); s++) {
            const Candidate& one = shortlist_[s];
            if (!is_there(rows_[s])) continue;
            const std::uint8_t* const bytes = scan_.beside + rows_[s] * scan_.beside_size;
            const float norm = scan_.norms[bytes[0]];
            const float product = scan_.reach * norm * kernel_.signed_sum(one.code, n_bytes_, r_.data(), sum);
            const float distance = scan_.is_product ? scan_.products[bytes[1]] - product - offset
                                                    : squares + norm * norm - 2 * product;
            if (distance < best_.threshold()) best_.add({distance, one.place});
        }
    }

    const PrhScan& scan_;
    const ScanKernel& kernel_;
    const std::int64_t n_probes_;
    faiss::DistanceComputer* const computer_;   // null: vectors are floats as they are, if there are any
    const std::int64_t n_bytes_;
    std::vector<float> r_;   // the query, or its residual, with zeros for the last bits
    std::vector<std::uint8_t> code_;
    std::uint8_t positions_[kRoom];
    float estimates_[kRoom];
    Best best_;
    Nearest nearest_;
    Shortlist promising_;
    std::vector<Candidate> shortlist_;
    std::vector<Found> within_;
    std::vector<std::int64_t> rows_;   // of the shortlist
    std::vector<std::int64_t> probes_;
};

}  // namespace prh
