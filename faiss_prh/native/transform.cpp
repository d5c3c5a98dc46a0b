// The transform that Faiss sees, and the calls Python makes on it.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#ifdef __linux__
#include <sys/mman.h>
#endif

#include "aligned.hpp"
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

// Owns what a Matrix points to.
class BuiltMatrix {
  public:
    // Value (row, column) is values[row * row_step + column * column_step].
    BuiltMatrix(int d_in, int d_out, const float* values, std::int64_t row_step, std::int64_t column_step)
            : d_in_(d_in), d_out_(d_out), values_((d_out + kRowBlock - 1) / kRowBlock * kRowBlock * std::size_t(d_in)) {
        for (std::int64_t row = 0; row < d_out; row++)
            for (std::int64_t column = 0; column < d_in; column++)
                values_[(row / kRowBlock * d_in + column) * kRowBlock + row % kRowBlock] =
                        values[row * row_step + column * column_step];
    }

    Matrix view() const { return {d_in_, d_out_, values_.data()}; }
    bool operator==(const BuiltMatrix& other) const { return values_ == other.values_; }

  private:
    int d_in_, d_out_;
    std::vector<float> values_;
};

// What one thread works in.
struct Buffers {
    AlignedVector<float> tile;
    std::vector<float> kept, outputs;   // of vectors on their way to a tail, and from it
};

// What was learned, as given and as run; never changes.
struct Model {
    int n;
    std::vector<std::int64_t> layer_ends;
    std::vector<std::int32_t> i, j, kept;
    std::vector<float> theta, mean;
    BuiltPlan forward, inverse;
    std::optional<BuiltMatrix> tail, tail_back;   // if there is one: from what is kept to the outputs, and back
    std::optional<BuiltPlan> signs;               // of what comes from a tail

    Model(const Shape& shape, const Layers& layers, const float* mean_, int d_out, const float* tail_)
            : n(shape.n),
              layer_ends(layers.ends, layers.ends + layers.n_layers),
              i(layers.i, layers.i + n_rotations()),
              j(layers.j, layers.j + n_rotations()),
              kept(shape.kept, shape.kept + shape.n_kept),
              theta(layers.theta, layers.theta + n_rotations()),
              mean(mean_, mean_ + shape.d_in),
              forward(BuiltPlan::forward(shape, layers, mean_)),
              inverse(BuiltPlan::inverse(shape, layers, mean_)) {
        if (!tail_) return;
        tail.emplace(shape.n_kept, d_out, tail_, shape.n_kept, 1);
        tail_back.emplace(d_out, shape.n_kept, tail_, 1, shape.n_kept);
        std::vector<std::int32_t> all(d_out);
        std::iota(all.begin(), all.end(), 0);
        signs = BuiltPlan::forward({d_out, d_out, d_out, all.data()}, {}, std::vector<float>(d_out).data());
    }

    std::int64_t n_rotations() const { return layer_ends.empty() ? 0 : layer_ends.back(); }

    bool operator==(const Model& other) const {
        return n == other.n && layer_ends == other.layer_ends && i == other.i && j == other.j && kept == other.kept &&
                theta == other.theta && mean == other.mean && tail == other.tail;
    }

    std::int64_t apply(std::int64_t n, const float* x, float* y) const {
        const Plan plan = forward.view();
        if (!tail)
            return first_unusable(n, [&](std::int64_t begin, std::int64_t end, Buffers& buffers) {
                return kernel().apply(plan, end - begin, x + begin * plan.d_in, y + begin * plan.d_out, buffers.tile.data());
            });
        const Matrix matrix = tail->view();
        return first_unusable(n, [&](std::int64_t begin, std::int64_t end, Buffers& buffers) {
            const std::int64_t unusable = to_kept(plan, end - begin, x + begin * plan.d_in, buffers);
            kernel().multiply(matrix, end - begin, buffers.kept.data(), y + begin * matrix.d_out);
            return unusable;
        });
    }

    std::int64_t reverse(std::int64_t n, const float* y, float* x) const { return reverse(inverse, n, y, x); }

    // With a plan of the same rotations, but perhaps another mean.
    std::int64_t reverse(const BuiltPlan& back, std::int64_t n, const float* y, float* x) const {
        const Plan plan = back.view();
        if (!tail)
            return first_unusable(n, [&](std::int64_t begin, std::int64_t end, Buffers& buffers) {
                return kernel().apply(plan, end - begin, y + begin * plan.d_in, x + begin * plan.d_out, buffers.tile.data());
            });
        const Matrix matrix = tail_back->view();
        return first_unusable(n, [&](std::int64_t begin, std::int64_t end, Buffers& buffers) {
            buffers.kept.resize((end - begin) * plan.d_in);
            kernel().multiply(matrix, end - begin, y + begin * matrix.d_in, buffers.kept.data());
            kernel().apply(plan, end - begin, buffers.kept.data(), x + begin * plan.d_out, buffers.tile.data());
            return kernel().first_unusable_row(end - begin, matrix.d_in, y + begin * matrix.d_in);
        });
    }

    std::int64_t encode(std::int64_t n, const float* x, std::uint8_t* codes, float* norms) const {
        const Plan plan = forward.view();
        const std::int64_t code_size = ((tail ? tail->view().d_out : plan.d_out) + 7) / 8;
        const auto encode_some = [&](const Plan& last, std::int64_t begin, std::int64_t end, const float* from,
                                     Buffers& buffers) {
            return kernel().encode(last, end - begin, from, codes + begin * code_size, norms ? norms + begin : nullptr,
                                   buffers.tile.data());
        };
        if (!tail)
            return first_unusable(n, [&](std::int64_t begin, std::int64_t end, Buffers& buffers) {
                return encode_some(plan, begin, end, x + begin * plan.d_in, buffers);
            });
        const Matrix matrix = tail->view();
        const Plan last = signs->view();
        return first_unusable(n, [&](std::int64_t begin, std::int64_t end, Buffers& buffers) {
            const std::int64_t unusable = to_kept(plan, end - begin, x + begin * plan.d_in, buffers);
            if (unusable >= 0) end = begin + unusable;
            buffers.outputs.resize((end - begin) * matrix.d_out);
            kernel().multiply(matrix, end - begin, buffers.kept.data(), buffers.outputs.data());
            encode_some(last, begin, end, buffers.outputs.data(), buffers);
            return unusable;
        }, true);
    }

  private:
    static std::int64_t to_kept(const Plan& plan, std::int64_t n, const float* x, Buffers& buffers) {
        buffers.kept.resize(n * plan.d_out);
        return kernel().apply(plan, n, x, buffers.kept.data(), buffers.tile.data());
    }

    // Calls work(begin, end, buffers) on parts of the vectors 0 .. n. Gives the first that one of the calls gives, or -1;
    // if it `stops`, vectors far behind that one are left alone.
    template <class Work>
    std::int64_t first_unusable(std::int64_t n, const Work& work, bool stops = false) const {
        // A rotation takes the time of some products.
        const std::int64_t cost = n_rotations() + this->n + (tail ? tail->view().d_out * std::int64_t(kept.size()) / 6 : 0);
        const std::int64_t chunk = (kChunkRotations / cost / kTile + 1) * kTile;
        const std::int64_t part = tail ? kMostMultiplied : n;
        std::atomic<std::int64_t> first{n};
        parallel_for(n, chunk, [&] {
            // Not a std::shared_ptr, for which GCC 11 and later need a variable of glibc 2.32.
            AlignedVector<float> tile(tile_floats(this->n));
            return [&, buffers = Buffers{std::move(tile), {}, {}}](std::int64_t begin, std::int64_t end) mutable {
                for (; begin < end; begin += part) {
                    const std::int64_t found = work(begin, std::min(end, begin + part), buffers);
                    if (found < 0) continue;
                    std::int64_t known = first;
                    while (begin + found < known && !first.compare_exchange_weak(known, begin + found)) {}
                    if (stops) return;
                }
            };
        });
        return first == n ? -1 : first.load();
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

// What is behind a transform of Faiss's, of whichever class.
class Rotating {
  public:
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

    virtual bool has_learned() const = 0;
    virtual void set(const Shape& shape, const Layers& layers, const float* mean, const float* tail) = 0;

  protected:
    ~Rotating() = default;

    Published<Model> model_;
};

Rotating& as_rotating(PrhTransform* handle) {
    return dynamic_cast<Rotating&>(*reinterpret_cast<faiss::VectorTransform*>(handle));
}

const Rotating& as_rotating(const PrhTransform* handle) {
    return as_rotating(const_cast<PrhTransform*>(handle));
}

// Large memory is filled five times as fast if it comes in large pages.
void ask_for_large_pages([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t size) {
#ifdef MADV_HUGEPAGE
    constexpr std::uintptr_t kPage = 4096;
    const std::uintptr_t first = (reinterpret_cast<std::uintptr_t>(memory) + kPage - 1) & -kPage;
    const std::uintptr_t end = reinterpret_cast<std::uintptr_t>(memory) + size;
    if (end > first) madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
#endif
}

// A rotation as Faiss's LinearTransform has it: y = A x + b.
struct Dense {
    std::vector<float> A, b;

    Dense(const Shape& shape, const Layers& layers, std::size_t d_out, const Model& model) {
        const std::size_t d_in = shape.d_in;
        A.reserve(d_out * d_in);
        ask_for_large_pages(A.data(), d_out * d_in * sizeof(float));
        // A row of A is what one output goes back to, if there is no mean to be added. Some at a time stay in the cache.
        const BuiltPlan back = BuiltPlan::inverse(shape, layers, std::vector<float>(d_in).data());
        const std::size_t step = std::min<std::size_t>(d_out, 256);
        std::vector<float> units(step * d_out);
        for (std::size_t first = 0; first < d_out; first += step) {
            const std::size_t count = std::min(step, d_out - first);
            for (std::size_t unit = 0; unit < count; unit++) units[unit * d_out + first + unit] = 1;
            A.resize(A.size() + count * d_in);
            model.reverse(back, count, units.data(), A.data() + first * d_in);
            for (std::size_t unit = 0; unit < count; unit++) units[unit * d_out + first + unit] = 0;
        }
        if (std::all_of(model.mean.begin(), model.mean.end(), [](float value) { return value == 0; })) return;
        b.resize(d_out);
        model.apply(1, std::vector<float>(d_in).data(), b.data());
    }
};

// Up to rounding, which is not the same on every machine.
bool are_close(const std::vector<float>& some, const std::vector<float>& others, double scale) {
    return std::equal(some.begin(), some.end(), others.begin(), others.end(),
                      [=](float one, float other) { return std::abs(one - other) <= 1e-5 * scale; });
}

// The object that Faiss sees: a LinearTransform, or where its matrix would be too large, a plain VectorTransform.
template <class Base>
class Transform final : public Base, public Rotating {
    static constexpr bool kIsLinear = std::is_same_v<Base, faiss::LinearTransform>;

  public:
    Transform(int d_in, int d_out, PrhTrainCallback train) : Base(d_in, d_out), train_(train) {}

    void train(std::int64_t n, const float* x) override {
        char failure[1000] = "training failed";
        faiss::VectorTransform* const handle = this;
        train_(reinterpret_cast<PrhTransform*>(handle), n, x, failure, sizeof failure);
        if (*failure) throw std::runtime_error(failure);
    }

    void apply_noalloc(std::int64_t n, const float* x, float* y) const override {
        const Learned model = learned();
        refuse_too_large(n, this->d_in, x, model->apply(n, x, y));
    }

    void reverse_transform(std::int64_t n, const float* y, float* x) const override {
        const Learned model = learned();
        refuse_too_large(n, this->d_out, y, model->reverse(n, y, x));
    }

    void check_identical(const faiss::VectorTransform& other) const override {
        const bool is_alike = this->d_in == other.d_in && this->d_out == other.d_out;
        if (const auto* rotating = dynamic_cast<const Rotating*>(&other)) {
            const bool trained = has_learned();
            if (is_alike && trained == rotating->has_learned() && (!trained || *learned() == *rotating->learned())) return;
        } else if (const auto* dense = dynamic_cast<const faiss::LinearTransform*>(&other)) {
            if (is_alike && is_twin(*dense)) return;
        } else {
            throw std::runtime_error("PRHTransform: the other transform is not a PRHTransform");
        }
        throw std::runtime_error("PRHTransform: the other transform holds another rotation");
    }

    bool has_learned() const override { return __atomic_load_n(&this->is_trained, __ATOMIC_ACQUIRE); }

    void set(const Shape& shape, const Layers& layers, const float* mean, const float* tail) override {
        Model model(shape, layers, mean, this->d_out, tail);
        if constexpr (kIsLinear) {
            Dense dense(shape, layers, this->d_out, model);
            this->A.swap(dense.A);
            this->b.swap(dense.b);
            this->have_bias = !this->b.empty();
            this->is_orthonormal = true;   // the rows, or with more outputs than inputs the columns
        }
        model_.replace(std::move(model));
        // Faiss's own field, and so no std::atomic; several threads may train at once.
        __atomic_store_n(&this->is_trained, true, __ATOMIC_RELEASE);
    }

  private:
    // Whether Faiss has written this transform and read it again as a dense one.
    bool is_twin(const faiss::LinearTransform& other) const {
        if constexpr (!kIsLinear) return false;
        else {
            if (!has_learned() || !other.is_trained) return false;
            const std::vector<float>& mean = learned()->mean;
            const double norm = std::sqrt(std::inner_product(mean.begin(), mean.end(), mean.begin(), 0.0));
            return are_close(this->A, other.A, 1) && are_close(this->b, other.b, norm);
        }
    }

    PrhTrainCallback train_;
};

template <class Base>
PrhTransform* new_transform(int d_in, int d_out, PrhTrainCallback train) {
    faiss::VectorTransform* transform = new (std::nothrow) Transform<Base>(d_in, d_out, train);
    return reinterpret_cast<PrhTransform*>(transform);
}

}  // namespace
}  // namespace prh

PrhTransform* prh_transform_new(int d_in, int d_out, bool is_linear, PrhTrainCallback train) {
    return is_linear ? prh::new_transform<faiss::LinearTransform>(d_in, d_out, train)
                     : prh::new_transform<faiss::VectorTransform>(d_in, d_out, train);
}

void prh_transform_free(PrhTransform* transform) {
    delete reinterpret_cast<faiss::VectorTransform*>(transform);
}

const char* prh_transform_set(PrhTransform* transform, int n, int n_layers, const std::int64_t* layer_ends,
                              const std::int32_t* i, const std::int32_t* j, const float* theta, const float* mean,
                              int n_kept, const std::int32_t* kept, const float* tail) {
    return prh::caught([&] {
        const auto* seen = reinterpret_cast<const faiss::VectorTransform*>(transform);
        const prh::Shape shape{n, seen->d_in, n_kept, kept};
        prh::as_rotating(transform).set(shape, {n_layers, layer_ends, i, j, theta}, mean, tail);
    });
}

std::int64_t prh_transform_encode(const PrhTransform* transform, std::int64_t n, const float* x, std::uint8_t* codes,
                                  float* norms) {
    std::int64_t result = -2;
    prh::caught([&] { result = prh::as_rotating(transform).learned()->encode(n, x, codes, norms); });
    return result;
}

std::int64_t prh_transform_apply(const PrhTransform* transform, std::int64_t n, const float* x, float* y) {
    std::int64_t result = -2;
    prh::caught([&] {
        const prh::Rotating::Learned model = prh::as_rotating(transform).learned();
        result = model->apply(n, x, y);
    });
    return result;
}

std::int64_t prh_transform_reverse(const PrhTransform* transform, std::int64_t n, const float* y, float* x) {
    std::int64_t result = -2;
    prh::caught([&] {
        const prh::Rotating::Learned model = prh::as_rotating(transform).learned();
        result = model->reverse(n, y, x);
    });
    return result;
}
