// The best of many candidates: a few in order, many in no order, or the nearest codes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace prh {

struct Candidate {
    float distance;   // or Hamming distance, or estimate
    float slack;      // how much better than its estimate it may be
    std::int64_t place;
    const std::uint8_t* code;

    float at_best() const { return distance - slack; }
};

// A type and not a function, so that sorting does not call it by its address.
struct IsBetter {
    bool operator()(const Candidate& a, const Candidate& b) const {
        return a.distance < b.distance || (a.distance == b.distance && a.place < b.place);
    }
};

// Moves the last of some sorted things to its place among them.
template <class T, class Less>
inline void move_to_its_place(T* begin, T* last, const Less& less) {
    const T one = *last;
    for (; last > begin && less(one, last[-1]); last--) *last = last[-1];
    *last = one;
}

// The k best of what it is given: few of them in order, more as a heap with the worst on top.
class Best {
  public:
    void start(std::int64_t k) {
        k_ = static_cast<std::size_t>(k);
        found_.clear();
    }
    // Only what is below can still get in.
    float threshold() const {
        return found_.size() < k_ ? std::numeric_limits<float>::infinity() : worst().distance;
    }
    void add(const Candidate& one) {
        const bool is_full = found_.size() == k_;
        if (is_full && !is_sorted()) std::pop_heap(found_.begin(), found_.end(), IsBetter{});
        if (is_full)
            found_.back() = one;
        else
            found_.push_back(one);
        if (is_sorted())
            move_to_its_place(found_.data(), &found_.back(), IsBetter{});
        else
            std::push_heap(found_.begin(), found_.end(), IsBetter{});
    }
    std::vector<Candidate>& sorted() {
        if (!is_sorted()) std::sort_heap(found_.begin(), found_.end(), IsBetter{});
        return found_;
    }

  private:
    static constexpr std::size_t kFew = 32;

    bool is_sorted() const { return k_ <= kFew; }
    const Candidate& worst() const { return is_sorted() ? found_.back() : found_.front(); }

    std::size_t k_ = 0;
    std::vector<Candidate> found_;
};

// The same for a large k, in no order. Once there are 2k, the worse half is dropped; from then on, distances are counted
// in buckets, which say without sorting what the k-th is at most. What it has beyond that is dropped now and then.
class Shortlist {
  public:
    void start(std::int64_t k) {
        k_ = static_cast<std::size_t>(k);
        threshold_ = std::numeric_limits<float>::infinity();
        has_buckets_ = false;
        found_.clear();
    }
    float threshold() const { return threshold_; }
    void add(const Candidate& one) {
        found_.push_back(one);
        if (has_buckets_) count(one.distance);
        if (found_.size() < 2 * k_ + (has_buckets_ ? kMore : 0)) return;
        drop();
        make_buckets();
    }
    std::vector<Candidate>& all() {
        if (found_.size() > k_) drop();
        return found_;
    }

  private:
    static constexpr std::size_t kMore = 512, kBuckets = 64;

    void drop() {
        const auto last = found_.begin() + static_cast<std::ptrdiff_t>(k_) - 1;
        std::nth_element(found_.begin(), last, found_.end(), IsBetter{});
        threshold_ = last->distance;
        found_.resize(k_);
    }

    void make_buckets() {
        low_ = threshold_;
        for (const Candidate& one : found_) low_ = std::min(low_, one.distance);
        scale_ = static_cast<float>(kBuckets - 1) / (threshold_ - low_);
        has_buckets_ = scale_ < std::numeric_limits<float>::max();   // else all are equal, or one is no number
        if (!has_buckets_) return;
        std::fill(counts_, counts_ + kBuckets, 0);
        std::fill(worst_, worst_ + kBuckets, low_);
        last_ = kBuckets - 1;
        n_ = 0;
        for (const Candidate& one : found_) count(one.distance);
    }

    // A threshold that falls at once leaves a little less to chance, and recall would fall by .001: hence some more than k.
    std::size_t wanted() const { return k_ + k_ / 4; }

    // One more distance, below the threshold: that falls to the worst of the last bucket that is needed.
    void count(float distance) {
        const float place = (distance - low_) * scale_;
        const std::size_t bucket = place > 0 ? std::min(static_cast<std::size_t>(place), last_) : 0;
        counts_[bucket]++;
        worst_[bucket] = std::max(worst_[bucket], distance);
        n_++;
        while (n_ - counts_[last_] >= wanted()) n_ -= counts_[last_--];
        if (n_ >= wanted()) threshold_ = worst_[last_];
    }

    std::size_t k_ = 0, n_ = 0, last_ = 0;   // n_: distances in the buckets up to the last that is needed
    float threshold_ = 0, low_ = 0, scale_ = 0;
    bool has_buckets_ = false;
    std::size_t counts_[kBuckets];
    float worst_[kBuckets];
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

}  // namespace prh
