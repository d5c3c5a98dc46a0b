// From layers of rotations to a plan the kernels run.
#pragma once

#include <cstdint>
#include <vector>

#include "kernel.hpp"

namespace prh {

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

    int d_;
    std::vector<float> centre_, scale_, output_offset_;
    std::vector<std::int32_t> output_rows_;
    std::int64_t n_walks_ = 0;
    std::vector<RowOffset> rows_;
    std::vector<float> coefficients_;
};

}  // namespace prh
