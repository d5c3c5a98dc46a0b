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

// A rotation of n dimensions: the first d_in are given, the others zero, and `kept` names those that are wanted.
struct Shape {
    int n, d_in, n_kept;
    const std::int32_t* kept;
};

// Owns what a Plan points to.
class BuiltPlan {
  public:
    // y = the kept ones of rotations(x - centre)
    static BuiltPlan forward(const Shape& shape, const Layers& layers, const float* centre);
    // x = the first ones of inverse rotations(y in the place of the kept) + centre
    static BuiltPlan inverse(const Shape& shape, const Layers& layers, const float* centre);

    Plan view() const;

  private:
    BuiltPlan(int n, const Layers& layers, bool inverse, const std::vector<std::int32_t>& inputs,
              const std::vector<std::int32_t>& outputs);
    std::size_t add_walks(std::vector<Layer>& turned, std::size_t layer, float*& coefficients);

    int n_;
    std::vector<float> centre_, scale_, output_offset_;
    std::vector<std::int32_t> output_rows_;
    std::int64_t n_walks_ = 0;
    bool is_plain_;
    std::vector<RowOffset> rows_;
    std::vector<float> coefficients_;
};

}  // namespace prh
