// Searches of flat codes and of lists against plain loops in double precision.
#include <algorithm>
#include <bitset>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <set>

#include "check.hpp"
#include "faiss_abi.hpp"

namespace {

constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max();

// What takes the place of a faiss::InvertedLists: its destructor has the slots 0 and 1, the other functions 2, 3 and 4.
class Lists {
  public:
    virtual ~Lists() {}
    virtual std::size_t list_size(std::size_t number) const { return ids_.at(number).size(); }
    virtual const std::uint8_t* get_codes(std::size_t number) const { return codes_.at(number).data(); }
    virtual const std::int64_t* get_ids(std::size_t number) const { return ids_.at(number).data(); }

    void append(Bytes codes, Numbers ids) {
        codes_.push_back(std::move(codes));
        ids_.push_back(std::move(ids));
    }
    std::int64_t n() const { return static_cast<std::int64_t>(ids_.size()); }
    std::int64_t& id(std::int64_t number, std::int64_t at) { return ids_[number][at]; }

  private:
    std::vector<Bytes> codes_;
    std::vector<Numbers> ids_;
};

struct Selector : faiss::IDSelector {
    bool is_member(std::int64_t id) const override { return id % 3 != 0; }
};

// Not to be used by two threads at once: a sanitizer would see it.
class Computer : public faiss::DistanceComputer {
  public:
    Computer(const Floats& vectors, std::int64_t d, bool is_product)
            : vectors_(vectors), d_(d), is_product_(is_product) {}
    void set_query(const float* x) override { query_ = x; }
    float operator()(std::int64_t row) override { return static_cast<float>(exact(query_, row)); }
    double exact(const float* x, std::int64_t row) const {
        double sum = 0;
        for (std::int64_t k = 0; k < d_; k++) {
            const double a = x[k], b = vectors_.at(row * d_ + k);
            sum += is_product_ ? a * b : (a - b) * (a - b);
        }
        return sum;
    }

  private:
    const Floats& vectors_;
    const std::int64_t d_;
    const bool is_product_;
    const float* query_ = nullptr;
};

Bytes random_codes(Random& random, std::int64_t n, std::int64_t stride, std::int64_t bits) {
    Bytes codes(n * stride);
    for (std::uint8_t& byte : codes) byte = static_cast<std::uint8_t>(random.below(256));
    for (std::int64_t c = 0; c < n && bits % 8; c++)
        codes[c * stride + bits / 8] &= static_cast<std::uint8_t>((1 << bits % 8) - 1);
    return codes;
}

double dot(std::int64_t d, const float* a, const float* b) {
    double sum = 0;
    for (std::int64_t k = 0; k < d; k++) sum += static_cast<double>(a[k]) * b[k];
    return sum;
}

double signed_sum(std::int64_t bits, const std::uint8_t* code, const float* r) {
    double sum = 0;
    for (std::int64_t k = 0; k < bits; k++) sum += code[k / 8] >> k % 8 & 1 ? r[k] : -r[k];
    return sum;
}

int hamming(std::int64_t n_bytes, const std::uint8_t* a, const std::uint8_t* b) {
    int distance = 0;
    for (std::int64_t k = 0; k < n_bytes; k++) distance += static_cast<int>(std::bitset<8>(a[k] ^ b[k]).count());
    return distance;
}

// A code that a search comes across.
struct Item {
    std::int64_t list, at, row;
    const std::uint8_t* code;
};

// How good a result is: less is better, even for inner products. What is written is the same with the right sign.
struct Expected {
    double distance, rounding;
    double by_bits;   // what decides whether a code of a residual is looked at closely
    std::int64_t label;
};

enum class Kind { kWhole, kResiduals };

// Something to search, with all that a search may need; the tests set what they are about.
class World {
  public:
    World(std::int64_t bits, const std::vector<int>& sizes, Kind kind, bool is_flat, bool is_product, std::int64_t n)
            : bits_(bits), n_bytes_((bits + 7) / 8), n_(n), random_(static_cast<unsigned>(bits * 4 + is_flat)) {
        const std::int64_t stride = n_bytes_ + (kind == Kind::kResiduals);
        total_ = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
        const auto order = random_.order(static_cast<int>(total_));
        Numbers rows(order.begin(), order.end());
        auto row = rows.begin();
        for (const int size : sizes) {
            lists_.append(random_codes(random_, size, stride, bits), Numbers(row, row + size));
            row += size;
        }
        flat_ = random_codes(random_, is_flat ? total_ : 0, stride, bits);
        n_probes_ = lists_.n() + 4;
        for (std::int64_t q = 0; q < n; q++)
            for (const auto p : random_.order(static_cast<int>(n_probes_))) {
                const std::int64_t none[] = {-1, lists_.n(), kFar, -kFar};
                probes_.push_back(p < lists_.n() ? p : none[p - lists_.n()]);
            }
        probes_.shrink_to_fit();
        z_ = random_.values(n * bits);
        x_ = random_.values(n * kD);
        centroids_ = random_.values(lists_.n() * bits);
        offset_ = random_.values(bits);
        vectors_ = random_.values(total_ * kD);
        beside_ = random_codes(random_, total_, 2, 16);
        norms_ = random_.values(256);
        products_ = random_.values(256);
        ids_.resize(total_);
        for (std::int64_t k = 0; k < total_; k++) ids_[k] = total_ + 7 * k;

        scan.lists = is_flat ? nullptr : &lists_;
        scan.codes = is_flat ? flat_.data() : nullptr;
        scan.n_lists = is_flat ? 1 : lists_.n();
        scan.n_codes = is_flat ? total_ : 0;
        scan.code_size = stride;
        scan.bits = bits;
        scan.is_product = is_product;
        scan.n_rows = total_;
        scan.reach = 0.8f;
        if (kind == Kind::kResiduals) {
            scan.centroids = centroids_.data();
            scan.low = 0.1f;
            scan.step = 0.02f;
            scan.margin = 1e9f;
        }
        if (is_product) scan.offset = offset_.data();
        set_queries(kind == Kind::kResiduals);
    }
    World(const World&) = delete;
    World& operator=(const World&) = delete;

    PrhScan scan{};
    std::int64_t total() const { return total_; }

    void filter(bool by_ids) {
        scan.selector = static_cast<const faiss::IDSelector*>(&selector_);
        scan.ids = by_ids ? ids_.data() : nullptr;
        scan.n_ids = by_ids ? total_ : 0;
    }
    void rank_by_bytes(std::int64_t shortlist) {
        scan.shortlist = shortlist;
        scan.beside = beside_.data();
        scan.beside_size = 2;
        scan.norms = norms_.data();
        scan.products = products_.data();
    }
    void rank_by_vectors(std::int64_t shortlist, bool as_floats = false) {
        scan.shortlist = shortlist;
        const std::int64_t n_threads = std::min<std::int64_t>(4, (n_ + 15) / 16);
        computers_.reset(new void*[n_threads]);   // not null even if there is none
        for (std::int64_t t = 0; t < n_threads; t++) {
            own_computers_.push_back(std::make_unique<Computer>(vectors_, kD, scan.is_product));
            computers_[t] = static_cast<faiss::DistanceComputer*>(own_computers_.back().get());
        }
        scan.computers = as_floats ? nullptr : computers_.get();
        scan.vectors = reinterpret_cast<const std::uint8_t*>(vectors_.data());
        scan.vector_size = kD * sizeof(float);
        scan.d = kD;
    }
    // Ids that are no rows, as a forged file may have them.
    void forge() {
        const std::int64_t forged[] = {-1, -kFar, total_, kFar, std::int64_t{1} << 40};
        int next = 0;
        for (std::int64_t list = 0; list < lists_.n(); list++)
            if (lists_.list_size(list)) lists_.id(list, 0) = forged[next++ % 5];
    }
    bool is_there(std::int64_t row) const { return row >= 0 && row < scan.n_rows; }

    void check_search(std::int64_t k) {
        const Results found = of_threads(k, [&](PrhQueries all, float* D, std::int64_t* I) {
            return prh_search(&scan, &all, k, D, I);
        });
        for (std::int64_t q = 0; q < n_; q++) compare(q, scanned(q), k, &found.D[q * k], &found.I[q * k]);
    }

    void check_rank(std::int64_t k) {
        const std::int64_t n_given = total_ / 2 + 3;
        Numbers given;
        for (std::int64_t q = 0; q < n_; q++) {
            const auto order = random_.order(static_cast<int>(total_));
            given.insert(given.end(), order.begin(), order.begin() + n_given - 3);
            given.insert(given.end(), {-1, kFar, total_});
        }
        given.shrink_to_fit();
        const Results found = of_threads(k, [&](PrhQueries all, float* D, std::int64_t* I) {
            return prh_rank(&scan, &all, n_given, given.data(), k, D, I);
        });
        for (std::int64_t q = 0; q < n_; q++) {
            std::vector<Item> items;
            for (std::int64_t g = 0; g < n_given; g++)
                if (const std::int64_t row = given[q * n_given + g]; is_there(row))
                    items.push_back({0, row, row, scan.codes + row * scan.code_size});
            compare_all(k, expected(q, items), &found.D[q * k], &found.I[q * k]);
        }
    }

    void check_range_search() {
        // Those within the median of the first query's distances.
        std::vector<Expected> some = expected(0, scanned(0));
        if (some.empty()) some.push_back({});
        std::sort(some.begin(), some.end(), closer);
        const auto radius = static_cast<float>(sign() * some[some.size() / 2].distance);
        for (int (*const threads)() : {one_thread, four_threads}) {
            prh_set_thread_source(threads);
            Numbers limits(n_ + 1);
            float* distances;
            std::int64_t* labels;
            PrhQueries all = queries();
            succeed(prh_range_search(&scan, &all, radius, limits.data(), &distances, &labels));
            for (std::int64_t q = 0; q < n_; q++) {
                std::map<std::int64_t, float> found;
                for (std::int64_t at = limits[q]; at < limits[q + 1]; at++) found[labels[at]] = distances[at];
                check(static_cast<std::int64_t>(found.size()) == limits[q + 1] - limits[q], "range: twice the same");
                for (const Expected& one : expected(q, scanned(q))) {
                    const double inside = sign() * radius - one.distance;
                    const auto it = found.find(one.label);
                    check(std::abs(inside) <= one.rounding || (it != found.end()) == (inside > 0),
                          "range of %ld bits: %g, radius %g", long(bits_), one.distance, radius);
                    if (it == found.end()) continue;
                    check(std::abs(sign() * it->second - one.distance) <= one.rounding, "range: a wrong distance");
                    found.erase(it);
                }
                check(found.empty(), "range of %ld bits: what is not there", long(bits_));
            }
            prh_free(distances);
            prh_free(labels);
        }
    }

  private:
    static constexpr std::int64_t kD = 5;

    // What native code makes of the queries: for inner products with residuals without the offset, for codes without half.
    void set_queries(bool residuals) {
        y_ = z_;
        codes_ = Bytes(n_ * n_bytes_);
        for (std::int64_t q = 0; q < n_; q++)
            for (std::int64_t k = 0; k < bits_; k++) {
                float& y = y_[q * bits_ + k];
                if (scan.is_product && residuals) y -= offset_[k];
                const float value = scan.is_product && !residuals ? y - offset_[k] / 2 : y;
                codes_[q * n_bytes_ + k / 8] |= static_cast<std::uint8_t>((value >= 0) << k % 8);
            }
    }

    static bool closer(const Expected& a, const Expected& b) { return a.distance < b.distance; }
    double sign() const { return scan.is_product ? -1 : 1; }

    struct Results {
        Floats D;
        Numbers I;
    };

    // One thread and four give the same.
    template <class Search>
    Results of_threads(std::int64_t k, const Search& search) const {
        Results found[2];
        for (const bool several : {false, true}) {
            prh_set_thread_source(several ? four_threads : one_thread);
            found[several] = {Floats(n_ * k), Numbers(n_ * k)};
            succeed(search(queries(), found[several].D.data(), found[several].I.data()));
        }
        check(found[0].D == found[1].D && found[0].I == found[1].I, "%ld bits: threads change the result", long(bits_));
        return found[0];
    }

    PrhQueries queries() const {
        return {n_, scan.lists ? n_probes_ : 1, x_.data(), z_.data(), scan.lists ? probes_.data() : nullptr, -1};
    }

    std::vector<Item> scanned(std::int64_t q) const {
        std::vector<Item> items;
        const auto append = [&](std::int64_t list, std::int64_t n, const std::uint8_t* codes, const std::int64_t* ids) {
            for (std::int64_t at = 0; at < n; at++) {
                const std::int64_t row = ids ? ids[at] : at;
                if ((scan.beside || scan.vectors) && !is_there(row)) continue;
                if (scan.ids && (row < 0 || row >= scan.n_ids)) continue;
                if (scan.selector && !selector_.is_member(scan.ids ? scan.ids[row] : row)) continue;
                items.push_back({list, at, row, codes + at * scan.code_size});
            }
        };
        if (!scan.lists) {
            append(0, total_, flat_.data(), nullptr);
            return items;
        }
        std::int64_t n_scanned = 0;
        for (std::int64_t p = 0; p < n_probes_ && !(scan.max_codes && n_scanned >= scan.max_codes); p++) {
            const std::int64_t list = probes_[q * n_probes_ + p];
            if (list < 0 || list >= lists_.n()) continue;
            const auto n = static_cast<std::int64_t>(lists_.list_size(list));
            append(list, n, lists_.get_codes(list), lists_.get_ids(list));
            n_scanned += n;
        }
        return items;
    }

    std::vector<Expected> expected(std::int64_t q, const std::vector<Item>& items) const {
        std::vector<Expected> all;
        Residual residual{-1, {}, {}, 0};
        for (const Item& item : items) {
            if (scan.centroids && residual.list != item.list) residual = residual_of(q, item.list);
            Expected one = distance(q, item, residual);
            one.label = scan.wants_places ? item.list << 32 | item.at : item.row;
            all.push_back(one);
        }
        return all;
    }

    struct Residual {
        std::int64_t list;
        Floats r;
        Bytes code;
        double squares;
    };

    Residual residual_of(std::int64_t q, std::int64_t list) const {
        Residual residual{list, Floats(&y_[q * bits_], &y_[q * bits_] + bits_), Bytes(n_bytes_), 0};
        for (std::int64_t k = 0; k < bits_; k++) {
            if (!scan.is_product) residual.r[k] -= centroids_[list * bits_ + k];
            residual.code[k / 8] |= static_cast<std::uint8_t>((residual.r[k] >= 0) << k % 8);
        }
        residual.squares = dot(bits_, residual.r.data(), residual.r.data());
        return residual;
    }

    Expected distance(std::int64_t q, const Item& item, const Residual& residual) const {
        const float* const z = &y_[q * bits_];
        if (scan.vectors) {
            const double exact = sign() * own_computers_[0]->exact(&x_[q * kD], item.row);
            return {exact, 1e-5 * (1 + std::abs(exact)), 0, 0};
        }
        if (scan.beside) {
            const std::uint8_t* const bytes = &beside_[item.row * 2];
            const double norm = norms_[bytes[0]], product = scan.reach * norm * signed_sum(bits_, item.code, z);
            const double squares = dot(bits_, z, z), rounding = kRelative * (1 + squares + 2 * static_cast<double>(bits_));
            if (!scan.is_product) return {squares + norm * norm - 2 * product, rounding, 0, 0};
            const double offset = dot(bits_, offset_.data(), offset_.data()) - dot(bits_, z, offset_.data());
            return {products_[bytes[1]] - product - offset, rounding, 0, 0};
        }
        if (!scan.centroids)
            return {double(hamming(n_bytes_, &codes_[q * n_bytes_], item.code)), 0, 0, 0};
        const float* const c = &centroids_[item.list * bits_];
        const double length = scan.low + scan.step * double(item.code[n_bytes_]), squares = residual.squares;
        const double base = scan.is_product ? dot(bits_, z, offset_.data()) - dot(bits_, z, c) : squares;
        const double factor = scan.is_product ? 1 : 2, square = scan.is_product ? 0 : length * length;
        const double cosine = std::cos(M_PI / double(bits_) * hamming(n_bytes_, residual.code.data(), item.code));
        return {base + square - factor * length * scan.reach * signed_sum(bits_, item.code, residual.r.data()),
                kRelative * (1 + squares + square + length * static_cast<double>(bits_)),
                base + square - factor * length * std::sqrt(squares) * (cosine + scan.margin / 2 - 2e-4), 0};
    }

    // A shortlist, if there is one, is of the least Hamming distances. Which of equal ones are on it is not promised.
    void compare(std::int64_t q, const std::vector<Item>& items, std::int64_t k, const float* D, const std::int64_t* I) {
        const auto n_short = static_cast<std::size_t>(std::max(k, scan.shortlist));
        const bool by_hamming = !scan.centroids && (scan.beside || scan.vectors) && n_short < items.size();
        if (scan.centroids && scan.margin < 1e9f) return compare_some(k, expected(q, items), D, I);
        if (!by_hamming) return compare_all(k, expected(q, items), D, I);
        std::vector<int> distances;
        for (const Item& item : items) distances.push_back(hamming(n_bytes_, &codes_[q * n_bytes_], item.code));
        std::vector<int> sorted = distances;
        std::sort(sorted.begin(), sorted.end());
        const int last = sorted[n_short - 1];
        std::vector<Item> sure, possible;
        for (std::size_t at = 0; at < items.size(); at++) {
            if (distances[at] < last) sure.push_back(items[at]);
            if (distances[at] <= last) possible.push_back(items[at]);
        }
        std::vector<Expected> of_sure = expected(q, sure);
        std::sort(of_sure.begin(), of_sure.end(), closer);
        check_each(k, expected(q, possible), D, I);
        for (std::size_t at = 0; at < of_sure.size() && at < std::size_t(k); at++)
            check(sign() * D[at] <= of_sure[at].distance + of_sure[at].rounding,
                  "shortlist of %ld bits: %g at %zu, not %g", long(bits_), D[at], at, of_sure[at].distance);
    }

    // The k best, up to ties.
    void compare_all(std::int64_t k, std::vector<Expected> all, const float* D, const std::int64_t* I) {
        const std::int64_t n = check_each(k, all, D, I);
        check(n == std::min(k, static_cast<std::int64_t>(all.size())), "%ld bits, k %ld: %ld found of %zu", long(bits_),
              long(k), long(n), all.size());
        std::sort(all.begin(), all.end(), closer);
        for (std::int64_t at = 0; at < n; at++)
            check(std::abs(sign() * D[at] - all[at].distance) <= all[at].rounding, "%ld bits, k %ld: %g at %ld, not %g",
                  long(bits_), long(k), D[at], long(at), all[at].distance);
    }

    // With a margin, what is better by both estimates than the last result must have been found.
    void compare_some(std::int64_t k, const std::vector<Expected>& all, const float* D, const std::int64_t* I) {
        const std::int64_t n = check_each(k, all, D, I);
        if (n < k) return compare_all(k, all, D, I);   // without a threshold there is nothing to leave out
        const std::set<std::int64_t> found(I, I + k);
        const double worst = sign() * D[k - 1];
        for (const Expected& one : all)
            check(found.count(one.label) || std::max(one.by_bits, one.distance) >= worst - one.rounding,
                  "%ld bits: %g, by bits %g, is better than %g", long(bits_), one.distance, one.by_bits, worst);
    }

    // Every result is one of these, once, with its own distance, and they are in order. Gives how many there are.
    std::int64_t check_each(std::int64_t k, const std::vector<Expected>& all, const float* D, const std::int64_t* I) {
        std::map<std::int64_t, Expected> by_label;
        for (const Expected& one : all) by_label[one.label] = one;
        const std::int64_t n_valid = std::count_if(I, I + k, [](std::int64_t label) { return label != -1; });
        for (std::int64_t at = 0; at < n_valid; at++) {
            const auto it = by_label.find(I[at]);
            check(it != by_label.end(), "%ld bits, k %ld: %lld is no result", long(bits_), long(k), (long long)I[at]);
            check(at == 0 || sign() * D[at - 1] <= sign() * D[at], "%ld bits: not in order", long(bits_));
            if (it == by_label.end()) continue;
            check(std::abs(sign() * D[at] - it->second.distance) <= it->second.rounding,
                  "%ld bits, k %ld: %lld has %g, not %g", long(bits_), long(k), (long long)I[at], D[at],
                  sign() * it->second.distance);
            by_label.erase(it);
        }
        for (std::int64_t at = n_valid; at < k; at++)
            check(I[at] == -1 && D[at] == static_cast<float>(sign()) * std::numeric_limits<float>::max(),
                  "what is written where there is no result");
        return n_valid;
    }

    static constexpr double kRelative = 2e-6;

    const std::int64_t bits_, n_bytes_, n_;
    std::int64_t total_, n_probes_;
    Random random_;
    Lists lists_;
    Bytes flat_, codes_, beside_;
    Numbers probes_, ids_;
    Floats z_, y_, x_, centroids_, offset_, vectors_, norms_, products_;
    const Selector selector_;
    std::vector<std::unique_ptr<Computer>> own_computers_;
    std::unique_ptr<void*[]> computers_;
};

const std::vector<int> kFew{3, 0, 1, 33, 20}, kMany{0, 1, 31, 32, 33, 255, 256, 257}, kMost{257, 1000};

void check_whole(std::int64_t bits, const std::vector<int>& sizes, std::int64_t n) {
    for (const bool is_flat : {false, true}) {
        World world(bits, sizes, Kind::kWhole, is_flat, false, n);
        for (const std::int64_t k : {std::int64_t{1}, std::int64_t{10}, world.total() + 5}) world.check_search(k);
        world.scan.shortlist = 30;   // which nothing ranks again
        world.check_search(10);
        world.scan.wants_places = !is_flat;
        world.filter(false);
        world.check_search(7);
        world.filter(true);
        world.scan.wants_places = false;
        world.check_search(7);
        world.scan.max_codes = world.total() / 4;
        world.check_search(40);
    }
    for (const bool is_product : {false, true})
        for (const bool is_flat : {false, true}) {
            World world(bits, sizes, Kind::kWhole, is_flat, is_product, n);
            world.rank_by_bytes(world.total());
            world.check_search(10);
            if (is_flat) world.check_rank(10);
            world.scan.shortlist = 20;
            world.check_search(5);
            world.check_search(30);   // more than the shortlist
            if (!is_flat) world.forge();
            world.scan.n_rows -= 2;
            world.filter(true);
            world.scan.shortlist = world.total();
            world.check_search(world.total() + 1);
            if (is_flat) world.check_rank(world.total() + 1);
        }
}

void check_residuals(std::int64_t bits, const std::vector<int>& sizes, std::int64_t n) {
    for (const bool is_product : {false, true}) {
        World world(bits, sizes, Kind::kResiduals, false, is_product, n);
        for (const std::int64_t k : {std::int64_t{1}, std::int64_t{10}, world.total() + 5}) world.check_search(k);
        world.check_range_search();
        for (const float margin : {0.0f, 0.1f, 0.5f}) {
            world.scan.margin = margin;
            world.check_search(10);
        }
        world.scan.margin = 1e9f;
        world.scan.max_codes = world.total() / 3;
        world.filter(true);
        world.check_search(20);
        world.check_range_search();
        world.scan.wants_places = true;
        world.check_search(20);
        world.forge();
        world.check_search(20);
    }
}

// By vectors of five dimensions, however long the codes are.
void check_vectors(std::int64_t bits, const std::vector<int>& sizes, std::int64_t n) {
    for (const bool is_product : {false, true})
        for (const Kind kind : {Kind::kWhole, Kind::kResiduals})
            for (const bool is_flat : {false, true}) {
                if (is_flat && kind == Kind::kResiduals) continue;
                World world(bits, sizes, kind, is_flat, is_product, n);
                world.rank_by_vectors(world.total(), is_flat);
                world.check_search(10);
                if (is_flat) world.check_rank(10);
                if (!is_flat) world.forge();
                world.scan.n_rows -= 2;
                world.check_search(world.total() + 1);
                world.filter(true);
                world.check_search(world.total() + 1);
                if (is_flat) world.check_rank(world.total() + 1);
                if (kind == Kind::kResiduals) continue;
                world.scan.n_rows += 2;   // rows that are not there would be on the shortlist
                world.scan.shortlist = 15;
                world.check_search(4);
            }
}

}  // namespace

void check_scanning() {
    prh_set_slots(2, 3, 4);
    for (std::int64_t bits = 1; bits <= 200; bits++) {
        check_whole(bits, kFew, 1);
        check_residuals(bits, kFew, 1);
    }
    for (const std::int64_t n_bytes : {1, 7, 8, 9, 13, 16, 17, 24, 32, 33, 48, 64, 65, 96, 100, 128, 200})
        for (const std::int64_t bits : {8 * n_bytes, 8 * n_bytes - 3}) {
            check_whole(bits, kMany, 1);
            check_residuals(bits, kMany, 1);
        }
    for (const std::int64_t bits : {5, 64, 100}) {
        for (const std::int64_t n : {0, 1, 70}) {
            check_whole(bits, kFew, n);
            if (n) check_residuals(bits, kFew, n);
            check_vectors(bits, kFew, n);
        }
        check_vectors(bits, kMany, 18);
        check_whole(bits, kMost, 2);
        check_residuals(bits, kMost, 2);
        check_whole(bits, {0, 0}, 3);
        check_vectors(bits, {0, 0}, 3);
    }
}
