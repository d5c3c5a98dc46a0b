// The part of Faiss's binary interface that transforms and searches need, declared from its public documentation; its layout is
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

// Filters. Faiss's Python module has kinds of its own, which call back into Python.
struct __attribute__((visibility("default"))) IDSelector {
    virtual bool is_member(std::int64_t id) const = 0;
    virtual ~IDSelector() {}
};

// Distances of stored vectors from a query; made by whatever stores them.
struct __attribute__((visibility("default"))) DistanceComputer {
    virtual void set_query(const float* x) = 0;
    virtual float operator()(std::int64_t row) = 0;
    virtual ~DistanceComputer() {}
};

}  // namespace faiss

namespace faiss_abi {

// Where a faiss::InvertedLists has its functions in the table of virtual ones: not the same in all versions.
struct Slots {
    int list_size, get_codes, get_ids;
};
inline Slots slots{2, 3, 4};

struct InvertedLists {
    std::size_t list_size(std::size_t number) const { return call<std::size_t>(slots.list_size, number); }
    const std::uint8_t* codes(std::size_t number) const { return call<const std::uint8_t*>(slots.get_codes, number); }
    const std::int64_t* ids(std::size_t number) const { return call<const std::int64_t*>(slots.get_ids, number); }

  private:
    template <class Result>
    Result call(int slot, std::size_t number) const {
        using Function = Result (*)(const InvertedLists*, std::size_t);
        return reinterpret_cast<Function>(table[slot])(this, number);
    }
    void* const* table;
};

}  // namespace faiss_abi
