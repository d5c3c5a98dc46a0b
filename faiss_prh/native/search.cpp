// Searching codes where Faiss keeps them, from queries to the k best: spread over threads.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "failure.hpp"
#include "nearest_lists.hpp"
#include "searcher.hpp"
#include "threads.hpp"

namespace prh {
namespace {

constexpr std::int64_t kChunk = 16;   // queries that a thread takes at a time
constexpr float kLargest = std::numeric_limits<float>::max();

// What the transform makes of some queries, in a buffer of its own; without its offset for inner products with residuals.
class Transformed {
  public:
    Transformed(const PrhScan& scan, std::int64_t n) : scan_(scan), z_(std::min(n, kChunk) * scan.bits) {}

    // Gives the first that is not finite or too large, or -1.
    std::int64_t operator()(std::int64_t n, const float* x, const float* z) {
        if (scan_.transform) {
            const std::int64_t unusable = prh_transform_apply(scan_.transform, n, x, z_.data());
            if (unusable >= 0) return unusable;
            if (unusable != -1) throw std::runtime_error(prh_last_failure());
        } else {
            std::copy(z, z + n * scan_.bits, z_.begin());
        }
        if (scan_.is_product && scan_.centroids)
            for (std::int64_t i = 0; i < n * scan_.bits; i++) z_[i] -= scan_.offset[i % scan_.bits];
        return -1;
    }
    const float* row(std::int64_t r) const { return z_.data() + r * scan_.bits; }

  private:
    const PrhScan& scan_;
    std::vector<float> z_;
};

// Calls work(searcher, query, number of it) for each query.
template <class Work>
void for_each_query(const PrhScan& scan, PrhQueries& queries, const Work& work) {
    if (queries.n == 0) return;   // then there is no computer either
    std::atomic<std::int64_t> n_searchers{0}, unusable{-1};
    const bool has_z = scan.transform || queries.z;
    const auto row = [](auto* rows, std::int64_t q, std::int64_t size) { return rows ? rows + q * size : nullptr; };
    const bool finds_lists = scan.centroids && !queries.probes;
    const auto search_some = [&](Searcher& searcher, Transformed& transformed, NearestLists& lists, std::int64_t begin,
                                 std::int64_t end) {
        const std::int64_t bad =
            has_z ? transformed(end - begin, row(queries.x, begin, scan.d), row(queries.z, begin, scan.bits)) : -1;
        if (bad >= 0) {
            unusable = begin + bad;
            throw std::invalid_argument("a query is not finite or too large");
        }
        if (finds_lists) lists.find(end - begin, transformed.row(0));
        for (std::int64_t q = begin; q < end; q++)
            work(searcher,
                 Query{has_z ? transformed.row(q - begin) : nullptr, row(queries.x, q, scan.d),
                       finds_lists ? lists.row(q - begin) : row(queries.probes, q, queries.n_probes)},
                 q);
    };
    const auto make_work = [&] {
        void* const computer = scan.computers ? scan.computers[n_searchers++] : nullptr;
        auto searcher =
            std::make_unique<Searcher>(scan, queries.n_probes, static_cast<faiss::DistanceComputer*>(computer));
        return [&, searcher = std::move(searcher),
                transformed = std::make_unique<Transformed>(scan, has_z ? queries.n : 0),
                lists = std::make_unique<NearestLists>(scan, queries.n_probes)](std::int64_t begin, std::int64_t end) {
            for (std::int64_t first = begin; first < end; first += kChunk)
                search_some(*searcher, *transformed, *lists, first, std::min(end, first + kChunk));
        };
    };
    try {
        parallel_for(queries.n, kChunk, make_work);
    } catch (...) {
        queries.unusable = unusable;
        throw;
    }
}

std::int64_t label_of(const PrhScan& scan, const Found& one) {
    return scan.wants_places ? one.place : row_of(scan, one.place);
}

float shown(const PrhScan& scan, float distance) {
    return scan.is_product ? -distance : distance;
}

void write(const PrhScan& scan, const std::vector<Found>& found, std::int64_t k, float* D, std::int64_t* I) {
    std::size_t at = 0;
    for (; at < found.size(); at++) {
        D[at] = shown(scan, found[at].distance);
        I[at] = label_of(scan, found[at]);
    }
    for (; at < static_cast<std::size_t>(k); at++) {
        D[at] = shown(scan, kLargest);
        I[at] = -1;
    }
}

}  // namespace
}  // namespace prh

void prh_set_slots(int list_size, int get_codes, int get_ids) {
    faiss_abi::slots = {list_size, get_codes, get_ids};
}

const char* prh_search(const PrhScan* scan, PrhQueries* queries, std::int64_t k, float* D, std::int64_t* I) {
    return prh::caught([&] {
        prh::for_each_query(*scan, *queries, [&](prh::Searcher& searcher, const prh::Query& query, std::int64_t q) {
            prh::write(*scan, searcher.k_best(query, k), k, D + q * k, I + q * k);
        });
    });
}

const char* prh_rank(const PrhScan* scan, PrhQueries* queries, std::int64_t n_rows, const std::int64_t* rows,
                     std::int64_t k, float* D, std::int64_t* I) {
    return prh::caught([&] {
        prh::for_each_query(*scan, *queries, [&](prh::Searcher& searcher, const prh::Query& query, std::int64_t q) {
            prh::write(*scan, searcher.k_best_of(query, n_rows, rows + q * n_rows, k), k, D + q * k, I + q * k);
        });
    });
}

const char* prh_range_search(const PrhScan* scan, PrhQueries* queries, float radius, std::int64_t* limits,
                             float** D, std::int64_t** I) {
    return prh::caught([&] {
        std::vector<std::vector<prh::Found>> found(queries->n);
        prh::for_each_query(*scan, *queries, [&](prh::Searcher& searcher, const prh::Query& query, std::int64_t q) {
            found[q] = searcher.within(query, prh::shown(*scan, radius));
        });
        limits[0] = 0;
        for (std::int64_t q = 0; q < queries->n; q++)
            limits[q + 1] = limits[q] + static_cast<std::int64_t>(found[q].size());
        const auto n = static_cast<std::size_t>(std::max<std::int64_t>(1, limits[queries->n]));
        std::unique_ptr<void, void (*)(void*)> distances(std::malloc(n * sizeof **D), std::free),
            labels(std::malloc(n * sizeof **I), std::free);
        if (!distances || !labels) throw std::bad_alloc();
        *D = static_cast<float*>(distances.release());
        *I = static_cast<std::int64_t*>(labels.release());
        for (std::int64_t q = 0; q < queries->n; q++)
            prh::write(*scan, found[q], static_cast<std::int64_t>(found[q].size()), *D + limits[q], *I + limits[q]);
    });
}

void prh_free(void* memory) {
    std::free(memory);
}
