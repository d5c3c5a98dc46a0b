// The part of Faiss's binary interface that a transform needs, declared from its public documentation; its layout is
// the same in faiss-cpu 1.8 to 1.15, and Python checks it at import.
//
// Everything is inline, so that the type information is emitted here: dynamic_cast compares it by name.
#pragma once

#include <cstdint>
#include <vector>

namespace faiss {

struct __attribute__((visibility("default"))) VectorTransform {
    int d_in;
    int d_out;
    bool is_trained;

    VectorTransform(int d_in, int d_out) : d_in(d_in), d_out(d_out), is_trained(false) {}

    // The order of these is the order of Faiss's table of virtual functions.
    virtual void train(std::int64_t, const float*) {}
    virtual void apply_noalloc(std::int64_t n, const float* x, float* y) const = 0;
    virtual void reverse_transform(std::int64_t n, const float* y, float* x) const = 0;
    virtual void check_identical(const VectorTransform& other) const = 0;
    virtual ~VectorTransform() {}
};

// y = A x + b. Faiss writes, clones and pickles whatever derives from it by these fields.
struct __attribute__((visibility("default"))) LinearTransform : VectorTransform {
    bool have_bias = false;
    bool is_orthonormal = false;
    std::vector<float> A;   // d_out rows of d_in values
    std::vector<float> b;   // empty without a bias
    bool verbose = false;

    using VectorTransform::VectorTransform;
    ~LinearTransform() override {}
};

}  // namespace faiss
