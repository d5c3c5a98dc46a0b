// What vectors are worth reading from memory to rank them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace prh {

// Predicts distances from scores, which are higher for what is nearer, by the line through the pairs seen so far. How far these
// are from the line says how good it is: where scores mean little, it rules out nothing.
class Prediction {
  public:
    void start() { *this = Prediction(); }
    void add(float score, float distance) {
        n_++;
        const double of_score = score - score_, of_distance = distance - distance_;
        score_ += of_score / n_;
        distance_ += of_distance / n_;
        scores_ += of_score * (score - score_);
        distances_ += of_distance * (distance - distance_);
        both_ += of_score * (distance - distance_);
    }
    // Lets it follow from what was added; before, nothing does.
    void update() {
        if (!(both_ < 0)) return;   // also if something is not a number
        slope_ = both_ / scores_;
        variance_ = kSure * kSure * std::max(distances_ - slope_ * both_, kRounding * distances_) / (n_ - 2);
        for_mean_ = 1 + 1 / n_;
        for_slope_ = 1 / scores_;
    }
    // Whether a distance below the threshold is, for a score, farther from the line than by so many standard deviations.
    bool is_unlikely(float score, float threshold) const {
        const double from_mean = score - score_, excess = distance_ + slope_ * from_mean - threshold;
        return excess > 0 && excess * excess > variance_ * (for_mean_ + from_mean * from_mean * for_slope_);
    }

  private:
    static constexpr double kSure = 3.25, kRounding = 1e-9;

    double n_ = 0, score_ = 0, distance_ = 0;        // how many, and their means
    double scores_ = 0, distances_ = 0, both_ = 0;   // sums of squares, and of products, of what they are from the means
    double slope_ = 0, variance_ = std::numeric_limits<double>::infinity(), for_mean_ = 1, for_slope_ = 0;
};

// The order of scores, higher ones first, but for those that are almost equal: by counting, as sorting takes as long as ranking.
class RoughOrder {
  public:
    const std::vector<std::int32_t>& operator()(const std::vector<float>& scores) {
        const auto ends = std::minmax_element(scores.begin(), scores.end());
        const float highest = *ends.second, scale = (kBuckets - 1) / (highest - *ends.first);
        const auto bucket_of = [&](float score) {
            const float place = (highest - score) * scale;   // not a number if all are equal
            return place > 0 ? std::min(static_cast<int>(place), kBuckets - 1) : 0;
        };
        std::fill(begins_, begins_ + kBuckets + 1, 0);
        for (const float score : scores) begins_[bucket_of(score) + 1]++;
        for (int bucket = 0; bucket < kBuckets; bucket++) begins_[bucket + 1] += begins_[bucket];
        order_.resize(scores.size());
        for (std::size_t i = 0; i < scores.size(); i++)
            order_[begins_[bucket_of(scores[i])]++] = static_cast<std::int32_t>(i);
        return order_;
    }

  private:
    static constexpr int kBuckets = 128;

    std::int32_t begins_[kBuckets + 1];
    std::vector<std::int32_t> order_;
};

}  // namespace prh
