// Searching codes where Faiss keeps them, from the transformed queries to the k best, one query after the other.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>
#include <vector>

#include "dispatch.hpp"
#include "failure.hpp"
#include "faiss_abi.hpp"
#include "prh.h"
#include "threads.hpp"

namespace prh {
namespace {

constexpr std::int64_t kChunk = 16;   // queries that a thread takes at a time
constexpr int kFirstBlock = 32;        // codes at first, while there is no threshold yet
constexpr std::size_t kAhead = 8;   // vectors that are fetched before they are needed
constexpr int kPrefetchedBytes = 512;
constexpr float kLargest = std::numeric_limits<float>::max();

// How many standard deviations of the estimate's error a vector may be better than its estimate.
constexpr float kSure = 3;

struct List {
    const std::uint8_t* codes;
    const std::int64_t* ids;   // null: they are the positions
    std::int64_t n;

    std::int64_t row(std::int64_t at) const { return ids ? ids[at] : at; }
};

List list_of(const PrhScan& scan, std::int64_t number) {
    if (!scan.lists) return {scan.codes, nullptr, scan.n_codes};
    const auto* const lists = static_cast<const faiss_abi::InvertedLists*>(scan.lists);
    const auto n = static_cast<std::int64_t>(lists->list_size(number));
    return n ? List{lists->codes(number), lists->ids(number), n} : List{nullptr, nullptr, 0};
}

// Where a code is, as Faiss's own search of pairs has it. Without lists it is the position.
std::int64_t place_of(std::int64_t list, std::int64_t at) {
    return list << 32 | at;
}

std::int64_t row_of(const PrhScan& scan, std::int64_t place) {
    return scan.lists ? list_of(scan, place >> 32).row(place & 0xffffffff) : place;
}

struct Candidate {
    float distance;   // or Hamming distance, or estimate
    float slack;      // how much better than its estimate it may be
    std::int64_t place;
    const std::uint8_t* code;

    float at_best() const { return distance - slack; }
};

inline bool is_better(const Candidate& a, const Candidate& b) {
    return a.distance < b.distance || (a.distance == b.distance && a.place < b.place);
}

// The k best of what it is given: the worst of them is on top.
class Best {
  public:
    void start(std::int64_t k) {
        k_ = static_cast<std::size_t>(k);
        found_.clear();
    }
    // Only what is below can still get in.
    float threshold() const {
        return found_.size() < k_ ? std::numeric_limits<float>::infinity() : found_.front().distance;
    }
    void add(const Candidate& one) {
        if (found_.size() == k_) {
            std::pop_heap(found_.begin(), found_.end(), is_better);
            found_.back() = one;
        } else {
            found_.push_back(one);
        }
        std::push_heap(found_.begin(), found_.end(), is_better);
    }
    std::vector<Candidate>& sorted() {
        std::sort_heap(found_.begin(), found_.end(), is_better);
        return found_;
    }

  private:
    std::size_t k_ = 0;
    std::vector<Candidate> found_;
};

// The same for a large k, in no order: room for 2k is emptied now and then, which takes less time than a heap, and the
// threshold falls only then.
class Shortlist {
  public:
    void start(std::int64_t k) {
        k_ = static_cast<std::size_t>(k);
        threshold_ = std::numeric_limits<float>::infinity();
        found_.clear();
    }
    float threshold() const { return threshold_; }
    void add(const Candidate& one) {
        found_.push_back(one);
        if (found_.size() >= 2 * k_) drop();
    }
    std::vector<Candidate>& all() {
        if (found_.size() > k_) drop();
        return found_;
    }

  private:
    void drop() {
        const auto last = found_.begin() + static_cast<std::ptrdiff_t>(k_) - 1;
        std::nth_element(found_.begin(), last, found_.end(), is_better);
        threshold_ = last->distance;
        found_.resize(k_);
    }
    std::size_t k_ = 0;
    float threshold_ = 0;
    std::vector<Candidate> found_;
};

// The k codes of least Hamming distance, of equal ones the first: by counting instead of a heap.
class Nearest {
  public:
    void start(std::int64_t k, std::int64_t bits) {
        k_ = k;
        n_ = 0;
        worst_ = static_cast<std::int32_t>(bits) + 1;
        counts_.assign(bits + 2, 0);
        found_.clear();
    }
    std::int32_t threshold() const { return worst_; }
    void add(std::int32_t distance, const Candidate& one) {
        found_.push_back(one);
        found_.back().distance = static_cast<float>(distance);
        counts_[distance]++;
        if (++n_ > k_) {
            counts_[worst_]--;
            n_--;
        }
        if (n_ == k_)
            while (counts_[worst_] == 0) worst_--;
    }
    // In no order: what is added afterwards must come after start().
    std::vector<Candidate>& all() {
        std::int64_t left = n_ < k_ ? 0 : counts_[worst_];
        const auto is_dropped = [&](const Candidate& one) {
            return one.distance > worst_ || (one.distance == worst_ && left-- <= 0);
        };
        if (n_ >= k_) found_.erase(std::remove_if(found_.begin(), found_.end(), is_dropped), found_.end());
        return found_;
    }

  private:
    std::int64_t k_ = 0, n_ = 0;
    std::int32_t worst_ = 0;   // the largest distance among the k; before there are k, beyond all
    std::vector<std::int64_t> counts_;
    std::vector<Candidate> found_;
};

struct Query {
    const float* z;              // what the transforms make of it
    const float* x;              // itself
    const std::int64_t* probes;  // null: still to be found
};

// What one thread needs to search.
class Searcher {
  public:
    Searcher(const PrhScan& scan, std::int64_t n_probes, faiss::DistanceComputer* computer)
        : scan_(scan), kernel_(scan_kernel()), n_probes_(n_probes), computer_(computer),
          n_bytes_((scan.bits + 7) / 8), r_(8 * n_bytes_), code_(n_bytes_) {}

    std::vector<Candidate>& k_best(Query query, std::int64_t k) {
        find_lists(query);
        if (scan_.centroids) {
            if (!computer_) {
                best_.start(k);
                estimate_all(query, [&] { return best_.threshold(); }, [&](const Candidate& one) { best_.add(one); });
                return best_.sorted();
            }
            promising_.start(std::max(k, scan_.shortlist));
            estimate_all(query, [&] { return promising_.threshold(); },
                         [&](const Candidate& one) { promising_.add(one); });
            shortlist_.swap(promising_.all());
        } else {
            find_nearest(query, std::max(k, scan_.shortlist));
        }
        return ranked(query, k);
    }

    // The k best of some rows.
    std::vector<Candidate>& k_best_of(const Query& query, std::int64_t n, const std::int64_t* rows, std::int64_t k) {
        shortlist_.clear();
        for (std::int64_t at = 0; at < n; at++)
            if (rows[at] >= 0) shortlist_.push_back({0, 0, rows[at], scan_.codes + rows[at] * scan_.code_size});
        return ranked(query, k);
    }

    std::vector<Candidate>& within(Query query, float radius) {
        find_lists(query);
        shortlist_.clear();
        estimate_all(query, [&] { return radius; }, [&](const Candidate& one) { shortlist_.push_back(one); });
        return shortlist_;
    }

  private:
    // The lists to search: of the nearest codes or centroids, of equally near ones the first.
    void find_lists(Query& query) {
        if (!scan_.centroids) set_code(query);
        if (!scan_.lists || query.probes) return;
        if (scan_.coarse) {
            nearest_.start(n_probes_, 8 * n_bytes_);
            scan_near({code_.data(), n_bytes_, n_bytes_}, 0, {scan_.coarse, nullptr, scan_.n_lists}, false);
            shortlist_.swap(nearest_.all());
            std::sort(shortlist_.begin(), shortlist_.end(), is_better);
        } else {
            best_.start(n_probes_);
            for (std::int64_t number = 0; number < scan_.n_lists; number++) {
                const float* const centroid = scan_.centroids + number * scan_.bits;
                const float distance = scan_.is_product ? -kernel_.dot(scan_.bits, query.z, centroid)
                                                        : kernel_.square_distance(scan_.bits, query.z, centroid);
                if (distance < best_.threshold()) best_.add({distance, 0, number, nullptr});
            }
            shortlist_.swap(best_.sorted());
        }
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

    // Calls found(candidate) for what has an estimate below the threshold in the lists of residuals.
    template <class Threshold, class Found>
    void estimate_all(const Query& query, const Threshold& threshold, const Found& found) {
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
        const float deviation = std::sqrt(static_cast<float>(M_PI_2 - 1) / static_cast<float>(scan_.bits));
        // Before an exact distance, what is a little worse than the threshold may still be better.
        const float sure = computer_ && scan_.is_isometric ? kSure * deviation : std::numeric_limits<float>::infinity();
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
                const int count = kernel_.promising(codes, estimate, begin, n, threshold(), estimates_, positions_);
                for (int p = 0; p < count; p++) {
                    const std::int64_t at = first + positions_[p];
                    if (!(estimates_[p] < threshold()) || !is_allowed(list, at)) continue;   // it has become less
                    const std::uint8_t* const code = list.codes + at * scan_.code_size;
                    found({estimates_[p], slack(estimate, sure, code[n_bytes_]), place_of(number, at), code});
                }
                first += n;
                block = std::min(2 * block, kBlock);
            }
        });
    }

    // How much better than its estimate a vector may be, by the errors of its signs and of the byte for its norm. The first
    // and the last byte may stand for any norm beyond them.
    float slack(const Estimate& estimate, float sure, std::uint8_t byte) const {
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
                    nearest_.add(distances[in_block], {0, 0, place_of(number, at), block + in_block * codes.stride});
            }
        }
    }

    template <class Work>
    void for_each_list(const Query& query, const Work& work) {
        std::int64_t n_scanned = 0;
        for (std::int64_t p = 0; p < n_probes_; p++) {
            const std::int64_t number = scan_.lists ? query.probes[p] : 0;
            if (number < 0 || number >= scan_.n_lists) continue;   // the quantizer found no more
            const List list = list_of(scan_, number);
            if (list.n) work(number, list);
            n_scanned += list.n;
            if (scan_.max_codes && n_scanned >= scan_.max_codes) break;
        }
    }

    bool is_allowed(const List& list, std::int64_t at) const {
        if (!scan_.selector) return true;
        const std::int64_t row = list.row(at);
        return static_cast<const faiss::IDSelector*>(scan_.selector)->is_member(scan_.ids ? scan_.ids[row] : row);
    }

    std::vector<Candidate>& ranked(const Query& query, std::int64_t k) {
        best_.start(k);
        if (!computer_ && !scan_.beside) {
            for (const Candidate& one : shortlist_) best_.add(one);
            return best_.sorted();
        }
        const bool may_stop = computer_ && scan_.centroids && scan_.is_isometric;
        if (may_stop)
            std::sort(shortlist_.begin(), shortlist_.end(),
                      [](const Candidate& a, const Candidate& b) { return a.at_best() < b.at_best(); });
        rows_.resize(shortlist_.size());
        for (std::size_t s = 0; s < rows_.size(); s++) rows_[s] = row_of(scan_, shortlist_[s].place);
        if (computer_)
            rank_by_vectors(query, may_stop);
        else
            rank_by_bytes(query);
        return best_.sorted();
    }

    // Ids of a list that are no rows of what ranks them come from a forged file, or from behind the index's back.
    bool is_there(std::int64_t row) const { return row >= 0 && row < scan_.n_rows; }

    // In the order of what they may be at best, until none that is left can be among the k best.
    void rank_by_vectors(const Query& query, bool may_stop) {
        computer_->set_query(query.x);
        for (std::size_t s = 0; s < shortlist_.size(); s++) {
            if (s + kAhead < rows_.size()) prefetch(rows_[s + kAhead]);
            Candidate& one = shortlist_[s];
            if (may_stop && one.at_best() >= best_.threshold()) break;
            if (!is_there(rows_[s])) continue;
            one.distance = exact(rows_[s]);
            if (one.distance < best_.threshold()) best_.add(one);
        }
    }

    void prefetch(std::int64_t row) const {
        const std::int64_t size = std::min<std::int64_t>(scan_.vector_size, kPrefetchedBytes);
        for (std::int64_t at = 0; at < size; at += 64) __builtin_prefetch(scan_.vectors + row * scan_.vector_size + at);
    }

    float exact(std::int64_t row) const {
        const float distance = (*computer_)(row);
        return scan_.is_product ? -distance : distance;
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
            Candidate& one = shortlist_[s];
            if (!is_there(rows_[s])) continue;
            const std::uint8_t* const bytes = scan_.beside + rows_[s] * scan_.beside_size;
            const float norm = scan_.norms[bytes[0]];
            const float product = scan_.reach * norm * kernel_.signed_sum(one.code, n_bytes_, r_.data(), sum);
            one.distance = scan_.is_product ? scan_.products[bytes[1]] - product - offset
                                            : squares + norm * norm - 2 * product;
            if (one.distance < best_.threshold()) best_.add(one);
        }
    }

    const PrhScan& scan_;
    const ScanKernel& kernel_;
    const std::int64_t n_probes_;
    faiss::DistanceComputer* const computer_;   // null: there are no vectors to rank by
    const std::int64_t n_bytes_;
    std::vector<float> r_;   // the query, or its residual, with zeros for the last bits
    std::vector<std::uint8_t> code_;
    std::uint8_t positions_[kBlock];
    float estimates_[kBlock];
    Best best_;
    Nearest nearest_;
    Shortlist promising_;
    std::vector<Candidate> shortlist_;
    std::vector<std::int64_t> rows_;   // of the shortlist
    std::vector<std::int64_t> probes_;
};

// What the transform makes of some queries, in a buffer of its own; without its offset for inner products with residuals.
class Transformed {
  public:
    explicit Transformed(const PrhScan& scan) : scan_(scan), z_(kChunk * scan.bits) {}

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
    std::atomic<std::int64_t> n_searchers{0}, unusable{-1};
    const bool has_z = scan.transform || queries.z;
    const auto row = [](auto* rows, std::int64_t q, std::int64_t size) { return rows ? rows + q * size : nullptr; };
    const auto search_some = [&](Searcher& searcher, Transformed& transformed, std::int64_t begin, std::int64_t end) {
        const std::int64_t bad =
            has_z ? transformed(end - begin, row(queries.x, begin, scan.d), row(queries.z, begin, scan.bits)) : -1;
        if (bad >= 0) {
            unusable = begin + bad;
            throw std::invalid_argument("a query is not finite or too large");
        }
        for (std::int64_t q = begin; q < end; q++)
            work(searcher,
                 Query{has_z ? transformed.row(q - begin) : nullptr, row(queries.x, q, scan.d),
                       row(queries.probes, q, queries.n_probes)},
                 q);
    };
    const auto make_work = [&] {
        void* const computer = scan.computers ? scan.computers[n_searchers++] : nullptr;
        const auto searcher =
            std::make_shared<Searcher>(scan, queries.n_probes, static_cast<faiss::DistanceComputer*>(computer));
        const auto transformed = std::make_shared<Transformed>(scan);
        return [&, searcher, transformed](std::int64_t begin, std::int64_t end) {
            for (std::int64_t first = begin; first < end; first += kChunk)
                search_some(*searcher, *transformed, first, std::min(end, first + kChunk));
        };
    };
    try {
        parallel_for(queries.n, kChunk, make_work);
    } catch (...) {
        queries.unusable = unusable;
        throw;
    }
}

std::int64_t label_of(const PrhScan& scan, const Candidate& one) {
    return scan.wants_places ? one.place : row_of(scan, one.place);
}

float shown(const PrhScan& scan, float distance) {
    return scan.is_product ? -distance : distance;
}

void write(const PrhScan& scan, const std::vector<Candidate>& found, std::int64_t k, float* D, std::int64_t* I) {
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
        std::vector<std::vector<prh::Candidate>> found(queries->n);
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
