// The transform that Faiss sees, and the calls Python makes on it.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>

#include "dispatch.hpp"
#include "failure.hpp"
#include "faiss_abi.hpp"
#include "plan.hpp"
#include "prh.h"
#include "published.hpp"
#include "threads.hpp"

namespace prh {
namespace {

// As many rotations of one vector make a chunk of work that is worth a thread.
constexpr std::int64_t kChunkRotations = 1 << 20;

constexpr char kNotTrained[] = "PRHTransform is not trained";

struct Free {
    void operator()(float* buffer) const { std::free(buffer); }
};

std::unique_ptr<float, Free> new_tile(std::int64_t d) {
    void* buffer = std::aligned_alloc(64, tile_floats(d) * sizeof(float));
    if (!buffer) throw std::bad_alloc();
    return std::unique_ptr<float, Free>(static_cast<float*>(buffer));
}

// What was learned, as given and as run; never changes.
struct Model {
    int n;
    std::vector<std::int64_t> layer_ends;
    std::vector<std::int32_t> i, j, kept;
    std::vector<float> theta, mean;
    BuiltPlan forward, inverse;

    Model(const Shape& shape, const Layers& layers, const float* mean_)
            : n(shape.n),
              layer_ends(layers.ends, layers.ends + layers.n_layers),
              i(layers.i, layers.i + n_rotations()),
              j(layers.j, layers.j + n_rotations()),
              kept(shape.kept, shape.kept + shape.d_out),
              theta(layers.theta, layers.theta + n_rotations()),
              mean(mean_, mean_ + shape.d_in),
              forward(BuiltPlan::forward(shape, layers, mean_)),
              inverse(BuiltPlan::inverse(shape, layers, mean_)) {}

    std::int64_t n_rotations() const { return layer_ends.empty() ? 0 : layer_ends.back(); }

    bool operator==(const Model& other) const {
        return n == other.n && layer_ends == other.layer_ends && i == other.i && j == other.j && kept == other.kept &&
                theta == other.theta && mean == other.mean;
    }

    // Calls work(begin, end, tile) on chunks of the vectors 0 .. n. Gives the first that one of the calls gives, or -1.
    template <class Work>
    std::int64_t first_unusable(std::int64_t n, const Work& work) const {
        const std::int64_t n_tiles = kChunkRotations / (n_rotations() + this->n) / kTile + 1;
        std::atomic<std::int64_t> first{n};
        parallel_for(n, n_tiles * kTile, [&] {
            return [&, tile = new_tile(this->n)](std::int64_t begin, std::int64_t end) {
                const std::int64_t found = work(begin, end, tile.get());
                if (found < 0) return;
                std::int64_t known = first;
                while (begin + found < known && !first.compare_exchange_weak(known, begin + found)) {}
            };
        });
        return first == n ? -1 : first.load();
    }

    std::int64_t apply(const BuiltPlan& plan, std::int64_t n, const float* from, float* to) const {
        const Plan view = plan.view();
        return first_unusable(n, [&](std::int64_t begin, std::int64_t end, float* tile) {
            return kernel().apply(view, end - begin, from + begin * view.d_in, to + begin * view.d_out, tile);
        });
    }

    std::int64_t encode(std::int64_t n, const float* x, std::uint8_t* codes, float* norms) const {
        const Plan view = forward.view();
        const std::int64_t code_size = (view.d_out + 7) / 8;
        return first_unusable(n, [&](std::int64_t begin, std::int64_t end, float* tile) {
            return kernel().encode(view, end - begin, x + begin * view.d_in, codes + begin * code_size,
                                   norms ? norms + begin : nullptr, tile);
        });
    }
};

// Faiss passes on what is not finite, and so do we; but finite values must not become something else without a word.
void refuse_too_large(std::int64_t n, std::int64_t d, const float* x, std::int64_t first_unusable) {
    for (std::int64_t v = first_unusable; v >= 0 && v < n; v++) {
        const float* const row = x + v * d;
        const bool is_finite = std::all_of(row, row + d, [](float value) { return std::isfinite(value); });
        if (is_finite && kernel().first_unusable_row(1, d, row) == 0)
            throw std::range_error("PRHTransform: vector " + std::to_string(v) + " is too large to compute with");
    }
}

class Transform final : public faiss::VectorTransform {
  public:
    Transform(int d_in, int d_out, PrhTrainCallback train) : VectorTransform(d_in, d_out), train_(train) {}

    void train(std::int64_t n, const float* x) override {
        char failure[1000] = "training failed";
        train_(reinterpret_cast<PrhTransform*>(static_cast<VectorTransform*>(this)), n, x, failure, sizeof failure);
        if (*failure) throw std::runtime_error(failure);
    }

    void apply_noalloc(std::int64_t n, const float* x, float* y) const override {
        const Learned model = learned();
        refuse_too_large(n, d_in, x, model->apply(model->forward, n, x, y));
    }

    void reverse_transform(std::int64_t n, const float* y, float* x) const override {
        const Learned model = learned();
        refuse_too_large(n, d_out, y, model->apply(model->inverse, n, y, x));
    }

    void check_identical(const VectorTransform& other) const override {
        const auto* same_type = dynamic_cast<const Transform*>(&other);
        if (!same_type) throw std::runtime_error("PRHTransform: the other transform is not a PRHTransform");
        const bool trained = has_learned();
        if (d_in != same_type->d_in || d_out != same_type->d_out || trained != same_type->has_learned() ||
            (trained && !(*learned() == *same_type->learned())))
            throw std::runtime_error("PRHTransform: the other PRHTransform holds another rotation");
    }

    void set(int n, const Layers& layers, const float* mean, const std::int32_t* kept) {
        model_.replace(Model({n, d_in, d_out, kept}, layers, mean));
        // Faiss's own field, and so no std::atomic; several threads may train at once.
        __atomic_store_n(&is_trained, true, __ATOMIC_RELEASE);
    }

    // A running call keeps the model it began with.
    class Learned : public Published<Model>::Reading {
      public:
        explicit Learned(const Published<Model>& model) : Reading(model) {
            if (!*this) throw std::runtime_error(kNotTrained);
        }
    };

    Learned learned() const {
        if (!has_learned()) throw std::runtime_error(kNotTrained);   // also if there was a model once
        return Learned(model_);
    }

  private:
    bool has_learned() const { return __atomic_load_n(&is_trained, __ATOMIC_ACQUIRE); }

    PrhTrainCallback train_;
    Published<Model> model_;
};

const Transform& as_transform(const PrhTransform* handle) {
    return *static_cast<const Transform*>(reinterpret_cast<const faiss::VectorTransform*>(handle));
}

}  // namespace
}  // namespace prh

PrhTransform* prh_transform_new(int d_in, int d_out, PrhTrainCallback train) {
    faiss::VectorTransform* transform = new (std::nothrow) prh::Transform(d_in, d_out, train);
    return reinterpret_cast<PrhTransform*>(transform);
}

const char* prh_transform_set(PrhTransform* transform, int n, int n_layers, const std::int64_t* layer_ends,
                              const std::int32_t* i, const std::int32_t* j, const float* theta, const float* mean,
                              const std::int32_t* kept) {
    return prh::caught([&] {
        const prh::Layers layers{n_layers, layer_ends, i, j, theta};
        const_cast<prh::Transform&>(prh::as_transform(transform)).set(n, layers, mean, kept);
    });
}

std::int64_t prh_transform_encode(const PrhTransform* transform, std::int64_t n, const float* x, std::uint8_t* codes,
                                  float* norms) {
    std::int64_t result = -2;
    prh::caught([&] { result = prh::as_transform(transform).learned()->encode(n, x, codes, norms); });
    return result;
}

std::int64_t prh_transform_apply(const PrhTransform* transform, std::int64_t n, const float* x, float* y) {
    std::int64_t result = -2;
    prh::caught([&] {
        const prh::Transform::Learned model = prh::as_transform(transform).learned();
        result = model->apply(model->forward, n, x, y);
    });
    return result;
}

std::int64_t prh_transform_reverse(const PrhTransform* transform, std::int64_t n, const float* y, float* x) {
    std::int64_t result = -2;
    prh::caught([&] {
        const prh::Transform::Learned model = prh::as_transform(transform).learned();
        result = model->apply(model->inverse, n, y, x);
    });
    return result;
}
