// The best of many candidates: a few in order, many in no order, or the nearest codes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "scan.hpp"

namespace prh {

struct Found {
    float distance;
    std::int64_t place;
};

// What is to be ranked again.
struct Candidate {
    float distance;   // Hamming distance, or estimate
    float slack;      // how much better than its estimate it may be
    std::int64_t place;
    const std::uint8_t* code;   // null: nobody asks for it

    float at_best() const { return distance - slack; }
};

// A type and not a function, so that sorting does not call it by its address.
struct IsBetter {
    template <class T>
    bool operator()(const T& a, const T& b) const {
        return a.distance < b.distance || (a.distance == b.distance && a.place < b.place);
    }
};

// Puts one more among some sorted things, at `last` at most, over what is there. It comes by value, in registers: read from
// memory in another size than it was written, it would have to wait.
template <class T, class Less>
inline void put_in_order(T* begin, T* last, T one, const Less& less) {
    for (; last > begin && less(one, last[-1]); last--) *last = last[-1];
    *last = one;
}

// The k best of what it is given: few of them in order, more as a heap with the worst on top.
class Best {
  public:
    void start(std::int64_t k) {
        k_ = static_cast<std::size_t>(k);
        found_.clear();
        threshold_ = std::numeric_limits<float>::infinity();
    }
    // Only what is below can still get in.
    float threshold() const { return threshold_; }
    void add(Found one) {
        const bool is_full = found_.size() == k_;
        if (is_full && !is_sorted()) std::pop_heap(found_.begin(), found_.end(), IsBetter{});
        if (!is_full) found_.emplace_back();
        if (is_sorted()) {
            put_in_order(found_.data(), &found_.back(), one, IsBetter{});
        } else {
            found_.back() = one;
            std::push_heap(found_.begin(), found_.end(), IsBetter{});
        }
        if (found_.size() == k_) threshold_ = is_sorted() ? found_.back().distance : found_.front().distance;
    }
    std::vector<Found>& sorted() {
        if (!is_sorted()) std::sort_heap(found_.begin(), found_.end(), IsBetter{});
        return found_;
    }

  private:
    static constexpr std::size_t kFew = 32;

    bool is_sorted() const { return k_ <= kFew; }

    std::size_t k_ = 0;
    float threshold_ = 0;
    std::vector<Found> found_;
};

// The same for a large k, in no order: what is beyond the k best is dropped now and then.
class Shortlist {
  public:
    explicit Shortlist(const ScanKernel& kernel) : kernel_(kernel) {}

    void start(std::int64_t k) {
        k_ = k;
        n_ = 0;
        threshold_ = std::numeric_limits<float>::infinity();
    }
    float threshold() const { return threshold_; }

    // There must be room for them: for kBlock after each call of tighten().
    void add(float distance, float slack, std::int64_t place) {
        distances_[n_] = distance;
        slacks_[n_] = slack;
        places_[n_] = place;
        n_++;
    }

    // Lets the threshold fall. If it fell to the k-th at once, that would leave a little less to chance, and recall would fall
    // by .001: hence some more than k.
    void tighten() {
        const std::int64_t wanted = k_ + k_ / 4;
        if (n_ >= wanted + wanted / 2 + kFew) threshold_ = keep(wanted);
        const auto needed = static_cast<std::size_t>(n_ + kBlock);
        if (distances_.size() >= needed) return;
        distances_.resize(2 * needed);
        slacks_.resize(2 * needed);
        places_.resize(2 * needed);
    }

    void write(std::vector<Candidate>& to) {
        if (n_ > k_) keep(k_);
        to.clear();
        for (std::int64_t i = 0; i < n_; i++) to.push_back({distances_[i], slacks_[i], places_[i], nullptr});
    }

  private:
    static constexpr std::int64_t kFew = 8;

    // Drops all but the n best, and gives the worst of those that stay.
    float keep(std::int64_t n) {
        const float worst = kernel_.kth(n_, distances_.data(), n);
        move_to_front([&](float distance) { return distance <= worst; });
        std::int64_t n_excess = n_ - n;   // they are as good as the worst
        if (n_excess > 0) move_to_front([&](float distance) { return distance < worst || n_excess-- <= 0; });
        return worst;
    }

    template <class IsKept>
    void move_to_front(const IsKept& is_kept) {
        std::int64_t kept = 0;
        for (std::int64_t i = 0; i < n_; i++) {   // without a branch that nobody could foresee
            const float distance = distances_[i];
            distances_[kept] = distance;
            slacks_[kept] = slacks_[i];
            places_[kept] = places_[i];
            kept += is_kept(distance);
        }
        n_ = kept;
    }

    const ScanKernel& kernel_;
    std::int64_t k_ = 0, n_ = 0;
    float threshold_ = 0;
    std::vector<float> distances_, slacks_;
    std::vector<std::int64_t> places_;
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
    void add(std::int32_t distance, std::int64_t place, const std::uint8_t* code) {
        found_.push_back({static_cast<float>(distance), 0, place, code});
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
        if (n_ < k_) return found_;
        const auto worst = static_cast<float>(worst_);
        std::int64_t left = counts_[worst_];
        std::size_t kept = 0;
        for (const Candidate& one : found_) {   // without a branch that nobody could foresee
            const bool is_worst = one.distance == worst;
            const bool is_kept = (one.distance < worst) | (is_worst & (left > 0));
            left -= is_worst;
            found_[kept] = one;
            kept += is_kept;
        }
        found_.resize(kept);
        return found_;
    }

  private:
    std::int64_t k_ = 0, n_ = 0;
    std::int32_t worst_ = 0;   // the largest distance among the k; before there are k, beyond all
    std::vector<std::int64_t> counts_;
    std::vector<Candidate> found_;
};

}  // namespace prh
