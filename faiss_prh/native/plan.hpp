// From layers of rotations to a plan the kernels run.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "kernel.hpp"

namespace prh {

// u' = uu·u + uw·w, w' = wu·u + ww·w, with the larger entries on the diagonal.
struct Rotation {
    std::int32_t u, w;   // rows of the tile
    double uu, uw, wu, ww;
    float* coefficients;   // where to write p and q

    void turn_round() {
        std::swap(u, w);
        std::swap(uu, ww);
        std::swap(uw, wu);
    }
};

using Layer = std::vector<Rotation>;

struct Layers {
    int n_layers;
    const std::int64_t* ends;
    const std::int32_t *i, *j;
    const float* theta;
};

// Owns what a Plan points to.
class BuiltPlan {
  public:
    // y = rotations(x - centre)
    static BuiltPlan forward(int d, const Layers& layers, const float* centre);
    // x = inverse rotations(y) + centre
    static BuiltPlan inverse(int d, const Layers& layers, const float* centre);

    Plan view() const;

  private:
    BuiltPlan(int d, const Layers& layers, bool inverse);
    std::size_t add_walks(std::vector<Layer>& turned, std::size_t layer, float*& coefficients);

    int d_;
    std::vector<float> centre_, scale_, output_offset_;
    std::vector<std::int32_t> output_rows_;
    std::int64_t n_walks_ = 0;
    std::vector<RowOffset> rows_;
    std::vector<float> coefficients_;
};

}  // namespace prh
