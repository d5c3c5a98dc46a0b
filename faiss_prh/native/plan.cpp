#include "plan.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <utility>

namespace prh {
namespace {

// A group of rows that stays in the first-level cache while several layers are applied to it.
constexpr std::int32_t kMaxGroupRows = 256;
constexpr std::size_t kMaxLayerPairs = 8;

// Two consecutive layers as a graph of paths and even cycles. A walk decides the direction of each rotation.
class LayerPair {
  public:
    LayerPair(std::int32_t d, Layer& first, Layer& second)
            : d_(d), visited_(d + kSpareRows, false) {
        Layer* layers[2] = {&first, &second};
        for (int k = 0; k < 2; k++) {
            at_[k].assign(d + kSpareRows, nullptr);
            for (Rotation& r : *layers[k]) at_[k][r.u] = at_[k][r.w] = &r;
        }
    }

    bool ends_path(std::int32_t row) const { return !at_[0][row] != !at_[1][row]; }
    bool waits(std::int32_t row) const { return !visited_[row] && (at_[0][row] || at_[1][row]); }

    // From `start`: a first-layer rotation, a second-layer rotation, and so on, until the walk closes. A row that only
    // one layer turns ends a path; it is paired with a spare row and the path closed, with rotations by nothing.
    // Gives the number of walks: a pair that both layers turn, and no other, makes two.
    int walk(std::int32_t start, std::vector<RowOffset>& rows, float*& coefficients) {
        std::int32_t u = at_[0][start] ? start : d_, w = at_[0][start] ? other_end(0, start) : start;
        const std::int32_t second = other_end(1, w);
        const bool alone = at_[0][start] ? second < 0 || second == u : !at_[0][second];
        if (alone) {
            visited_[start] = visited_[other_end(at_[0][start] ? 0 : 1, start)] = true;
            return single(at_[0][start], rows, coefficients) + single(at_[1][start], rows, coefficients);
        }
        const std::size_t header = rows.size();
        rows.push_back(static_cast<RowOffset>(-1));
        for (;;) {
            rows[header]++;
            rows.insert(rows.end(), {offset_of(u), offset_of(w)});
            place(at_[0][u], u, coefficients);
            place(at_[1][w], w, coefficients);
            visited_[u] = visited_[w] = true;
            const std::int32_t next = other_end(1, w);
            if (next < 0 || visited_[next]) return 1;
            u = next;
            w = at_[0][u] ? other_end(0, u) : d_ + 1;
        }
    }

  private:
    std::int32_t other_end(int layer, std::int32_t row) const {
        const Rotation* r = at_[layer][row];
        return r ? r->u + r->w - row : -1;
    }

    static int single(Rotation* rotation, std::vector<RowOffset>& rows, float*& coefficients) {
        if (!rotation) return 0;
        rows.insert(rows.end(), {0, offset_of(rotation->u), offset_of(rotation->w)});
        place(rotation, rotation->u, coefficients);
        return 1;
    }

    static void place(Rotation* rotation, std::int32_t from, float*& coefficients) {
        if (rotation) {
            if (rotation->u != from) rotation->turn_round();
            rotation->coefficients = coefficients;
        }
        coefficients += 2;
    }

    std::int32_t d_;
    std::vector<Rotation*> at_[2];
    std::vector<bool> visited_;
};

// Sets of rows that rotations have joined.
class Groups {
  public:
    explicit Groups(std::int32_t d) : parent_(d), size_(d, 1) { std::iota(parent_.begin(), parent_.end(), 0); }

    std::int32_t find(std::int32_t row) {
        while (parent_[row] != row) row = parent_[row] = parent_[parent_[row]];
        return row;
    }

    void join(const Layer& layer) {
        for (const Rotation& r : layer) {
            std::int32_t a = find(r.u), b = find(r.w);
            if (a == b) continue;
            if (size_[a] < size_[b]) std::swap(a, b);
            parent_[b] = a;
            size_[a] += size_[b];
            largest_ = std::max(largest_, size_[a]);
        }
    }

    std::int32_t largest() const { return largest_; }

    // All rows, those of a group one after another.
    std::vector<std::int32_t> rows() {
        std::vector<std::int32_t> first(parent_.size() + 1, 0), sorted(parent_.size());
        for (std::size_t r = 0; r < parent_.size(); r++) first[find(r) + 1]++;
        std::partial_sum(first.begin(), first.end(), first.begin());
        for (std::size_t r = 0; r < parent_.size(); r++) sorted[first[find(r)]++] = r;
        return sorted;
    }

  private:
    std::vector<std::int32_t> parent_, size_;
    std::int32_t largest_ = 1;
};

// The layers as rotations of rows. A rotation by more than 45 degrees is one by less with its outputs exchanged,
// which costs nothing: row_of[k] tells where dimension k is found in the end.
std::vector<Layer> rotations_of_rows(const Layers& layers, bool inverse, std::vector<std::int32_t>& row_of) {
    std::vector<Layer> turned;
    for (int step = 0; step < layers.n_layers; step++) {
        const int layer = inverse ? layers.n_layers - 1 - step : step;
        Layer rotations;
        for (std::int64_t r = layer ? layers.ends[layer - 1] : 0; r < layers.ends[layer]; r++) {
            const double theta = inverse ? -layers.theta[r] : layers.theta[r];
            const double cosine = std::cos(theta), sine = std::sin(theta);
            std::int32_t &i = row_of[layers.i[r]], &j = row_of[layers.j[r]];
            if (std::abs(cosine) >= std::abs(sine)) {
                rotations.push_back({i, j, cosine, -sine, sine, cosine, nullptr});
            } else {
                rotations.push_back({i, j, sine, cosine, cosine, -sine, nullptr});
                std::swap(i, j);
            }
        }
        if (!rotations.empty()) turned.push_back(std::move(rotations));
    }
    return turned;
}

// Writes every rotation's p and q, and gives the factors that they leave out, by row.
//
// A dimension's true value is factor · row. With w += p·u first, w's new factor is ww times the old one, and u's is
// det / ww times. The factors must end at 1, so the first round finds what they must start from.
std::vector<double> write_coefficients(std::int32_t d, const std::vector<Layer>& layers) {
    std::vector<double> product(d, 1.0);
    for (const Layer& layer : layers)
        for (const Rotation& r : layer) {
            product[r.u] *= (r.uu * r.ww - r.uw * r.wu) / r.ww;
            product[r.w] *= r.ww;
        }
    std::vector<double> factor(d);
    for (std::int32_t r = 0; r < d; r++) factor[r] = 1.0 / product[r];
    const auto checked = [](double value, double most) {
        if (!(std::abs(value) <= most)) throw std::range_error("so many rotations leave single precision");
        return value;
    };
    // What the kernels take as input, scaled by this, stays in single precision.
    constexpr double kMostScale = 1e18, kMostCoefficient = 1e32;
    for (const double p : product) checked(p, kMostScale), checked(1.0 / p, kMostScale);
    for (const Layer& layer : layers)
        for (const Rotation& r : layer) {
            const double determinant = r.uu * r.ww - r.uw * r.wu;
            r.coefficients[0] =
                    static_cast<float>(checked(r.wu / r.ww * factor[r.u] / factor[r.w], kMostCoefficient));
            factor[r.w] *= r.ww;
            r.coefficients[1] =
                    static_cast<float>(checked(r.uw / determinant * factor[r.w] / factor[r.u], kMostCoefficient));
            factor[r.u] *= determinant / r.ww;
        }
    return product;
}

}  // namespace

// Input k goes to dimension inputs[k], and output k comes from dimension outputs[k].
BuiltPlan::BuiltPlan(int n, const Layers& layers, bool inverse, const std::vector<std::int32_t>& inputs,
                     const std::vector<std::int32_t>& outputs)
        : n_(n), centre_(inputs.size(), 0.0f), output_offset_(outputs.size(), 0.0f) {
    std::vector<std::int32_t> row_of(n, -1);
    std::int32_t row = 0;
    for (const std::int32_t dimension : inputs) row_of[dimension] = row++;
    for (std::int32_t& of : row_of)
        if (of < 0) of = row++;
    std::vector<Layer> turned = rotations_of_rows(layers, inverse, row_of);
    for (const std::int32_t dimension : outputs) output_rows_.push_back(row_of[dimension]);
    if (turned.size() % 2) turned.emplace_back();

    // A pair of a walk has four coefficients, and at least one rotation of its own.
    std::size_t n_rotations = 0;
    for (const Layer& layer : turned) n_rotations += layer.size();
    coefficients_.assign(4 * n_rotations, 0.0f);
    float* coefficients = coefficients_.data();
    for (std::size_t layer = 0; layer < turned.size();) layer = add_walks(turned, layer, coefficients);
    coefficients_.resize(coefficients - coefficients_.data());

    const std::vector<double> scale = write_coefficients(n, turned);
    scale_.assign(scale.begin(), scale.end());

    is_plain_ = n_walks_ == 0 && inputs.size() == outputs.size();   // input k is in row k
    for (std::size_t k = 0; k < outputs.size(); k++) is_plain_ = is_plain_ && output_rows_[k] == std::int32_t(k);
}

// Adds the walks of as many layers from `layer` on as leave small groups of rows, group by group. Gives the next layer.
std::size_t BuiltPlan::add_walks(std::vector<Layer>& turned, std::size_t layer, float*& coefficients) {
    Groups groups(n_);
    std::vector<LayerPair> pairs;
    while (layer < turned.size() && pairs.size() < kMaxLayerPairs) {
        Groups joined = groups;
        joined.join(turned[layer]);
        joined.join(turned[layer + 1]);
        if (!pairs.empty() && joined.largest() > kMaxGroupRows) break;
        groups = std::move(joined);
        pairs.emplace_back(n_, turned[layer], turned[layer + 1]);
        layer += 2;
    }
    const std::vector<std::int32_t> rows = groups.rows();
    for (std::size_t begin = 0, end; begin < rows.size(); begin = end) {
        for (end = begin + 1; end < rows.size() && groups.find(rows[end]) == groups.find(rows[begin]);) end++;
        for (LayerPair& pair : pairs)
            for (const bool paths : {true, false})   // a path must be walked from its end
                for (std::size_t r = begin; r < end; r++)
                    if (pair.waits(rows[r]) && pair.ends_path(rows[r]) == paths)
                        n_walks_ += pair.walk(rows[r], rows_, coefficients);
    }
    return layer;
}

BuiltPlan BuiltPlan::forward(const Shape& shape, const Layers& layers, const float* centre) {
    std::vector<std::int32_t> first(shape.d_in);
    std::iota(first.begin(), first.end(), 0);
    BuiltPlan plan(shape.n, layers, false, first, {shape.kept, shape.kept + shape.n_kept});
    plan.centre_.assign(centre, centre + shape.d_in);
    return plan;
}

BuiltPlan BuiltPlan::inverse(const Shape& shape, const Layers& layers, const float* centre) {
    std::vector<std::int32_t> first(shape.d_in);
    std::iota(first.begin(), first.end(), 0);
    BuiltPlan plan(shape.n, layers, true, {shape.kept, shape.kept + shape.n_kept}, first);
    plan.output_offset_.assign(centre, centre + shape.d_in);
    return plan;
}

Plan BuiltPlan::view() const {
    return {n_,
            static_cast<int>(centre_.size()),
            static_cast<int>(output_offset_.size()),
            centre_.data(),
            scale_.data(),
            n_walks_,
            rows_.data(),
            coefficients_.data(),
            output_rows_.data(),
            output_offset_.data(),
            is_plain_};
}

}  // namespace prh
