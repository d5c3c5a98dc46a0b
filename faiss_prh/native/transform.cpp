// The transform that Faiss sees, and the calls Python makes on it.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>

#include "dispatch.hpp"
#include "faiss_abi.hpp"
#include "plan.hpp"
#include "prh.h"
#include "threads.hpp"

namespace prh {
namespace {

// As many rotations of one vector make a chunk of work that is worth a thread.
constexpr std::int64_t kChunkRotations = 1 << 20;

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
    int d;
    std::vector<std::int64_t> layer_ends;
    std::vector<std::int32_t> i, j;
    std::vector<float> theta, mean;
    BuiltPlan forward, inverse;

    Model(int d, const Layers& layers, const float* mean_)
            : d(d),
              layer_ends(layers.ends, layers.ends + layers.n_layers),
              i(layers.i, layers.i + n_rotations()),
              j(layers.j, layers.j + n_rotations()),
              theta(layers.theta, layers.theta + n_rotations()),
              mean(mean_, mean_ + d),
              forward(BuiltPlan::forward(d, layers, mean_)),
              inverse(BuiltPlan::inverse(d, layers, mean_)) {}

    std::int64_t n_rotations() const { return layer_ends.empty() ? 0 : layer_ends.back(); }

    bool operator==(const Model& other) const {
        return layer_ends == other.layer_ends && i == other.i && j == other.j && theta == other.theta &&
                mean == other.mean;
    }

    // Calls work(begin, end, tile) on chunks of 0 .. n.
    template <class Work>
    void for_chunks(std::int64_t n, const Work& work) const {
        const std::int64_t n_tiles = kChunkRotations / (n_rotations() + d) / kTile + 1;
        parallel_for(n, n_tiles * kTile, [&] {
            return [&, tile = new_tile(d)](std::int64_t begin, std::int64_t end) { work(begin, end, tile.get()); };
        });
    }

    void apply(const BuiltPlan& plan, std::int64_t n, const float* from, float* to) const {
        const Plan view = plan.view();
        for_chunks(n, [&](std::int64_t begin, std::int64_t end, float* tile) {
            kernel().apply(view, end - begin, from + begin * d, to + begin * d, tile);
        });
    }

    std::int64_t encode(std::int64_t n, const float* x, std::uint8_t* codes) const {
        const Plan view = forward.view();
        const std::int64_t code_size = (d + 7) / 8;
        std::atomic<std::int64_t> first_bad{n};
        for_chunks(n, [&](std::int64_t begin, std::int64_t end, float* tile) {
            const std::int64_t bad =
                    kernel().encode(view, end - begin, x + begin * d, codes + begin * code_size, tile);
            if (bad < 0) return;
            std::int64_t known = first_bad;
            while (begin + bad < known && !first_bad.compare_exchange_weak(known, begin + bad)) {}
        });
        return first_bad == n ? -1 : first_bad.load();
    }
};

class Transform final : public faiss::VectorTransform {
  public:
    Transform(int d, PrhTrainCallback train) : VectorTransform(d, d), train_(train) {}

    void train(std::int64_t n, const float* x) override {
        auto* handle = reinterpret_cast<PrhTransform*>(static_cast<VectorTransform*>(this));
        if (const char* error = train_(handle, n, x)) throw std::runtime_error(error);
    }

    void apply_noalloc(std::int64_t n, const float* x, float* y) const override {
        const auto model = learned();
        model->apply(model->forward, n, x, y);
    }

    void reverse_transform(std::int64_t n, const float* y, float* x) const override {
        const auto model = learned();
        model->apply(model->inverse, n, y, x);
    }

    void check_identical(const VectorTransform& other) const override {
        const auto* same_type = dynamic_cast<const Transform*>(&other);
        if (!same_type) throw std::runtime_error("PRHTransform: the other transform is not a PRHTransform");
        if (d_in != same_type->d_in || is_trained != same_type->is_trained ||
            (is_trained && !(*learned() == *same_type->learned())))
            throw std::runtime_error("PRHTransform: the other PRHTransform holds another rotation");
    }

    void set(const Layers& layers, const float* mean) {
        std::atomic_store(&model_, std::make_shared<const Model>(d_in, layers, mean));
        is_trained = true;
    }

    std::shared_ptr<const Model> learned() const {
        auto model = std::atomic_load(&model_);
        if (!model) throw std::runtime_error("PRHTransform is not trained");
        return model;
    }

  private:
    PrhTrainCallback train_;
    std::shared_ptr<const Model> model_;   // replaced as a whole, so that a running call keeps the one it began with
};

const Transform& as_transform(const PrhTransform* handle) {
    return *static_cast<const Transform*>(reinterpret_cast<const faiss::VectorTransform*>(handle));
}

thread_local std::string last_failure;

// No exception may pass into ctypes.
template <class Work>
const char* caught(const Work& work) {
    try {
        work();
        return nullptr;
    } catch (const std::bad_alloc&) {
        last_failure = "out of memory";   // short enough to need no memory itself
    } catch (const std::exception& error) {
        last_failure = error.what();
    }
    return last_failure.c_str();
}

}  // namespace
}  // namespace prh

PrhTransform* prh_transform_new(int d, PrhTrainCallback train) {
    faiss::VectorTransform* transform = new (std::nothrow) prh::Transform(d, train);
    return reinterpret_cast<PrhTransform*>(transform);
}

const char* prh_transform_set(PrhTransform* transform, int n_layers, const std::int64_t* layer_ends,
                              const std::int32_t* i, const std::int32_t* j, const float* theta, const float* mean) {
    return prh::caught([&] {
        const_cast<prh::Transform&>(prh::as_transform(transform)).set({n_layers, layer_ends, i, j, theta}, mean);
    });
}

std::int64_t prh_transform_encode(const PrhTransform* transform, std::int64_t n, const float* x, std::uint8_t* codes) {
    std::int64_t result = -2;
    prh::caught([&] { result = prh::as_transform(transform).learned()->encode(n, x, codes); });
    return result;
}

const char* prh_last_failure() {
    return prh::last_failure.c_str();
}

const char* prh_transform_apply(const PrhTransform* transform, std::int64_t n, const float* x, float* y) {
    return prh::caught([&] { prh::as_transform(transform).apply_noalloc(n, x, y); });
}

const char* prh_transform_reverse(const PrhTransform* transform, std::int64_t n, const float* y, float* x) {
    return prh::caught([&] { prh::as_transform(transform).reverse_transform(n, y, x); });
}
