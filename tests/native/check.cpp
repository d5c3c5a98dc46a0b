// The native library's C functions against plain loops in double precision, at every SIMD level this CPU has.
// Every buffer is of the exact size, so that a sanitizer sees a step beyond it.
// check_joint.cpp does the same for learning angles together, check_neighbours.cpp for neighbours,
// check_products.cpp for products of matrices, check_scan.cpp for searching.
#include "check.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <numeric>
#include <thread>

#include "faiss_abi.hpp"

namespace {

constexpr double kRounding = 1e-5;   // of a vector's norm

// A rotation as the library is given it, and as a plain loop.
struct Rotation {
    int d_in, d_out, n;
    std::vector<std::int64_t> ends;
    std::vector<std::int32_t> i, j, kept;
    Floats theta, mean, tail;

    // With a tail from n_tail dimensions, if that is not 0. Of its rows, the rounding allows only that they are no longer
    // than about 1.
    Rotation(int d_in_, int d_out_, int n_layers, unsigned seed, int n_tail = 0)
            : d_in(d_in_), d_out(d_out_), n(std::max(d_in, d_out)) {
        Random random(seed);
        for (int layer = 0; layer < n_layers; layer++) {
            const auto order = random.order(n);
            const int n_pairs = layer % 3 == 2 ? random.below(n / 2 + 1) : n / 2;   // some layers leave dimensions out
            for (int p = 0; p < n_pairs; p++) {
                i.push_back(order[2 * p]);
                j.push_back(order[2 * p + 1]);
                theta.push_back(random.below(10) ? 3.2f * random.value() : 0.0f);
            }
            ends.push_back(static_cast<std::int64_t>(i.size()));
        }
        kept = random.order(n);
        kept.resize(n_tail ? n_tail : d_out);
        mean = random.values(d_in);
        tail = random.values(std::int64_t(n_tail) * d_out);
        for (float& value : tail) value /= std::sqrt(static_cast<float>(n_tail));
    }

    int n_kept() const { return static_cast<int>(kept.size()); }

    const char* set(PrhTransform* transform) const {
        return prh_transform_set(transform, n, static_cast<int>(ends.size()), ends.data(), i.data(), j.data(),
                                 theta.data(), mean.data(), n_kept(), kept.data(), tail.empty() ? nullptr : tail.data());
    }

    Doubles applied(const float* x) const {
        Doubles all(n, 0.0), y(d_out);
        for (int k = 0; k < d_in; k++) all[k] = static_cast<double>(x[k]) - mean[k];
        for (std::size_t r = 0; r < i.size(); r++) turn(all, r, theta[r]);
        for (int k = 0; k < d_out; k++)
            if (tail.empty())
                y[k] = all[kept[k]];
            else
                for (int m = 0; m < n_kept(); m++) y[k] += static_cast<double>(tail[k * n_kept() + m]) * all[kept[m]];
        return y;
    }

    Doubles reversed(const float* y) const {
        Doubles all(n, 0.0);
        for (int k = 0; k < d_out; k++)
            if (tail.empty())
                all[kept[k]] = y[k];
            else
                for (int m = 0; m < n_kept(); m++) all[kept[m]] += static_cast<double>(tail[k * n_kept() + m]) * y[k];
        for (std::size_t r = i.size(); r-- > 0;) turn(all, r, -theta[r]);
        all.resize(d_in);
        for (int k = 0; k < d_in; k++) all[k] += mean[k];
        return all;
    }

  private:
    void turn(Doubles& all, std::size_t r, double angle) const {
        double &a = all[i[r]], &b = all[j[r]];
        const double cosine = std::cos(angle), sine = std::sin(angle), u = a, w = b;
        a = cosine * u - sine * w;
        b = sine * u + cosine * w;
    }
};

class Transform {
  public:
    Transform(int d_in, int d_out, bool is_linear = false)
            : handle_(prh_transform_new(d_in, d_out, is_linear, nullptr)), is_linear_(is_linear) {}
    explicit Transform(const Rotation& rotation, bool is_linear = false)
            : Transform(rotation.d_in, rotation.d_out, is_linear) {
        succeed(rotation.set(handle_));
    }
    Transform(const Transform&) = delete;
    Transform& operator=(const Transform&) = delete;
    ~Transform() {
        if (is_linear_)
            delete reinterpret_cast<faiss::VectorTransform*>(handle_);   // as Faiss does
        else
            prh_transform_free(handle_);
    }
    operator PrhTransform*() const { return handle_; }

  private:
    PrhTransform* handle_;
    bool is_linear_;
};

bool bit(const Bytes& codes, std::int64_t row, int d_out, int k) {
    return codes[row * ((d_out + 7) / 8) + k / 8] >> (k % 8) & 1;
}

double norm(const Doubles& values) {
    return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0));
}

void check_near(const Doubles& expected, const float* found, const char* what, const Rotation& rotation, int n) {
    const double allowed = kRounding * std::max(1.0, norm(expected));
    for (std::size_t k = 0; k < expected.size(); k++)
        check(std::abs(found[k] - expected[k]) <= allowed, "%s: %d to %d dimensions, %zu layers, %d vectors: %g, not %g",
              what, rotation.d_in, rotation.d_out, rotation.ends.size(), n, found[k], expected[k]);
}

void check_rotation(int d_in, int d_out, int n_layers, int n_tail = 0) {
    const Rotation rotation(d_in, d_out, n_layers, static_cast<unsigned>(d_in * 1000 + d_out * 10 + n_layers), n_tail);
    const Transform transform(rotation);
    const int code_size = (d_out + 7) / 8;
    Random random(1);
    for (const int n : {0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 18, 19, 31, 33, 50}) {
        const Floats x = random.values(static_cast<std::int64_t>(n) * d_in);
        Floats y(static_cast<std::size_t>(n) * d_out), back(x.size());
        Bytes codes(static_cast<std::size_t>(n) * code_size, 0xaa), same_codes(codes);
        Floats norms(n);
        succeed(prh_transform_apply(transform, n, x.data(), y.data()));
        check(prh_transform_encode(transform, n, x.data(), codes.data(), nullptr) == -1, "finite vectors were refused");
        check(prh_transform_encode(transform, n, x.data(), same_codes.data(), norms.data()) == -1, "encode with norms");
        check(codes == same_codes, "encode: %d to %d dimensions, %d vectors: norms change the codes", d_in, d_out, n);
        succeed(prh_transform_reverse(transform, n, y.data(), back.data()));
        for (int v = 0; v < n; v++) {
            check_near(rotation.applied(&x[v * d_in]), &y[v * d_out], "apply", rotation, n);
            const double length = norm(Doubles(&y[v * d_out], &y[v * d_out] + d_out));
            check(std::abs(norms[v] - length) <= 1e-7 * length, "norms: %d to %d dimensions, %d vectors: %g, not %g",
                  d_in, d_out, n, norms[v], length);
            check_near(rotation.reversed(&y[v * d_out]), &back[v * d_in], "reverse", rotation, n);
            for (int k = 0; k < code_size * 8; k++)
                check(bit(codes, v, d_out, k) == (k < d_out && y[v * d_out + k] >= 0),
                      "encode: %d to %d dimensions, %d vectors: bit %d of vector %d", d_in, d_out, n, k, v);
        }
        Floats large = x;
        for (int v = 0; v < n; v++) large[v * d_in] = 1e18f;
        succeed(prh_transform_encode(transform, n, large.data(), codes.data(), nullptr));
        for (int bad = 0; bad < n; bad += 5) {
            Floats broken = x;
            for (const float value : {std::numeric_limits<float>::infinity(), std::nanf(""), 3e38f, -2e18f}) {
                broken[(bad + 1) * d_in - 1] = value;
                check(prh_transform_encode(transform, n, broken.data(), codes.data(), nullptr) == bad,
                      "encode: %d dimensions, %d vectors: vector %d cannot be used", d_in, n, bad);
                check(prh_transform_apply(transform, n, broken.data(), y.data()) == bad,
                      "apply: %d dimensions, %d vectors: vector %d cannot be used", d_in, n, bad);
            }
        }
    }
}

// The matrix and the bias that Faiss writes, against the rotation that runs.
void check_dense(int d_in, int d_out, int n_layers, int n_tail = 0) {
    const Rotation rotation(d_in, d_out, n_layers, static_cast<unsigned>(d_in + d_out), n_tail);
    const Transform transform(rotation, true), plain(rotation), other(Rotation(d_in, d_out, n_layers, 0, n_tail), true);
    const auto seen = [](PrhTransform* handle) {
        return reinterpret_cast<const faiss::VectorTransform*>(handle);
    };
    const auto* dense = dynamic_cast<const faiss::LinearTransform*>(seen(transform));
    check(dense && !dynamic_cast<const faiss::LinearTransform*>(seen(plain)), "which one is a LinearTransform");
    check(dense->A.size() == std::size_t(d_in) * d_out && dense->b.size() == std::size_t(d_out) && dense->have_bias,
          "dense: %d to %d dimensions: sizes", d_in, d_out);
    const Floats x = Random(4).values(d_in);
    Floats y(d_out);
    for (int row = 0; row < d_out; row++)
        y[row] = static_cast<float>(std::inner_product(x.begin(), x.end(), &dense->A[row * d_in], double(dense->b[row])));
    check_near(rotation.applied(x.data()), y.data(), "dense", rotation, 1);
    seen(transform)->check_identical(*seen(plain));
    seen(plain)->check_identical(*seen(transform));
    bool is_told_apart = false;
    try {
        seen(transform)->check_identical(*seen(other));
    } catch (const std::exception&) {
        is_told_apart = true;
    }
    check(is_told_apart || (n_layers == 0 && !n_tail), "check_identical: %d to %d dimensions", d_in, d_out);
}

// One thread and four, whole and cut: not a bit differs.
void check_threads(int d, int d_out, int n_tail) {
    const Rotation rotation(d, d_out, 6, 7, n_tail);
    const Transform transform(rotation);
    const std::int64_t n = 2500000 / (4 * d) + 5, code_size = (d_out + 7) / 8;
    const Floats x = Random(2).values(n * d);
    Floats y[2] = {Floats(n * d_out), Floats(n * d_out)}, back[2] = {Floats(n * d), Floats(n * d)};
    Bytes codes[2] = {Bytes(n * code_size), Bytes(n * code_size)};
    Floats norms[2] = {Floats(n), Floats(n)}, cut_norms(n);
    for (const bool several : {false, true}) {
        prh_set_thread_source(several ? four_threads : one_thread);
        succeed(prh_transform_apply(transform, n, x.data(), y[several].data()));
        succeed(prh_transform_reverse(transform, n, x.data(), back[several].data()));
        check(prh_transform_encode(transform, n, x.data(), codes[several].data(), norms[several].data()) == -1,
              "finite vectors were refused");
    }
    check(y[0] == y[1] && back[0] == back[1] && codes[0] == codes[1] && norms[0] == norms[1],
          "%d dimensions: threads change the result", d);
    Floats cut(n * d_out);
    for (std::int64_t first = 0, count; first < n; first += count) {
        count = std::min<std::int64_t>(n - first, first % 37 + 1);
        succeed(prh_transform_apply(transform, count, &x[first * d], &cut[first * d_out]));
        check(prh_transform_encode(transform, count, &x[first * d], &codes[1][first * code_size], &cut_norms[first]) == -1,
              "finite vectors were refused");
    }
    check(cut == y[0] && codes[0] == codes[1] && cut_norms == norms[0], "%d dimensions: cuts change the result", d);
    Floats broken = x;
    broken[(n - 2) * d] = broken[(n / 2) * d] = std::nanf("");
    check(prh_transform_encode(transform, n, broken.data(), codes[1].data(), nullptr) == n / 2, "the first bad vector of two");
}

// Readers while others replace the rotation: each call gives one rotation's result or the other's.
void check_replacing() {
    constexpr int d = 24, n = 40, kRounds = 200;
    const Rotation rotations[2] = {{d, d, 4, 1}, {d, d, 5, 2}};
    const Floats x = Random(3).values(n * d);
    Floats expected[2] = {Floats(n * d), Floats(n * d)};
    const Transform transform(d, d);
    for (int r = 0; r < 2; r++) {
        succeed(rotations[r].set(transform));
        succeed(prh_transform_apply(transform, n, x.data(), expected[r].data()));
    }
    std::vector<std::thread> threads;
    for (int r = 0; r < 2; r++)
        threads.emplace_back([&, r] {
            for (int round = 0; round < kRounds; round++) succeed(rotations[r].set(transform));
        });
    for (int r = 0; r < 2; r++)
        threads.emplace_back([&] {
            Floats y(n * d);
            Bytes codes(n * d / 8);
            const auto* seen = reinterpret_cast<const faiss::VectorTransform*>(static_cast<PrhTransform*>(transform));
            for (int round = 0; round < kRounds; round++) {
                succeed(prh_transform_apply(transform, n, x.data(), y.data()));
                check(y == expected[0] || y == expected[1], "neither rotation's result");
                check(prh_transform_encode(transform, n, x.data(), codes.data(), nullptr) == -1, "finite vectors were refused");
                try {
                    seen->check_identical(*seen);
                } catch (const std::exception&) {   // it was replaced between the two looks at it
                }
            }
        });
    for (std::thread& thread : threads) thread.join();
}

void check_sample(int n, int m) {
    Random random(static_cast<unsigned>(n * 100 + m));
    const Floats x = random.values(n * m);
    Floats rows(n * m);
    const int first = m / 3;
    succeed(prh_rows_fill(rows.data(), n, m, 0, first, x.data()));
    succeed(prh_rows_fill(rows.data(), n, m, first, m - first, x.data() + first * n));
    bool filled = true;
    for (int r = 0; r < n; r++)
        for (int c = 0; c < m; c++) filled &= rows[r * m + c] == x[c * n + r];
    check(filled, "rows_fill: %d rows of %d", n, m);

    Doubles means(n);
    succeed(prh_rows_centre(rows.data(), n, m, means.data()));
    for (int r = 0; r < n; r++) {
        double mean = 0;
        for (int c = 0; c < m; c++) mean += x[c * n + r] / static_cast<double>(m);
        check(std::abs(means[r] - mean) < 1e-9, "rows_centre: %d rows of %d", n, m);
        for (int c = 0; c < m; c++) check(std::abs(rows[r * m + c] - (x[c * n + r] - mean)) < 1e-6, "rows_centre");
    }

    const auto order = random.order(n);
    const int n_pairs = n / 2;
    const std::vector<std::int32_t> i(order.begin(), order.begin() + n_pairs),
            j(order.begin() + n_pairs, order.begin() + 2 * n_pairs);
    Doubles covariances(n_pairs);
    succeed(prh_rows_covariances(rows.data(), m, n_pairs, i.data(), j.data(), covariances.data()));
    for (int p = 0; p < n_pairs; p++) {
        double sum = 0;
        for (int c = 0; c < m; c++) sum += static_cast<double>(rows[i[p] * m + c]) * rows[j[p] * m + c];
        check(std::abs(covariances[p] - sum / m) < 1e-9, "rows_covariances: %d rows of %d", n, m);
    }

    const Floats theta = random.values(n_pairs), before = rows;
    succeed(prh_rows_rotate(rows.data(), m, n_pairs, i.data(), j.data(), theta.data()));
    for (int p = 0; p < n_pairs; p++)
        for (int c = 0; c < m; c++) {
            const double cosine = std::cos(theta[p]), sine = std::sin(theta[p]);
            const double a = before[i[p] * m + c], b = before[j[p] * m + c];
            check(std::abs(rows[i[p] * m + c] - (cosine * a - sine * b)) < 1e-6 &&
                          std::abs(rows[j[p] * m + c] - (sine * a + cosine * b)) < 1e-6,
                  "rows_rotate: %d rows of %d", n, m);
        }
}

void check_matrix(int n, int n_pairs) {
    Random random(static_cast<unsigned>(n * 100 + n_pairs));
    const auto order = random.order(n);
    const std::vector<std::int32_t> i(order.begin(), order.begin() + n_pairs),
            j(order.begin() + n_pairs, order.begin() + 2 * n_pairs);
    const Floats theta = random.values(n_pairs);
    Doubles matrix(n * n), expected;
    for (double& value : matrix) value = random.value();
    expected = matrix;
    for (const bool columns : {false, true})
        for (int p = 0; p < n_pairs; p++)
            for (int c = 0; c < n; c++) {
                double& a = columns ? expected[c * n + i[p]] : expected[i[p] * n + c];
                double& b = columns ? expected[c * n + j[p]] : expected[j[p] * n + c];
                const double cosine = std::cos(double(theta[p])), sine = std::sin(double(theta[p])), u = a, w = b;
                a = cosine * u - sine * w;
                b = sine * u + cosine * w;
            }
    succeed(prh_matrix_rotate(matrix.data(), n, n_pairs, i.data(), j.data(), theta.data()));
    for (int k = 0; k < n * n; k++) check(std::abs(matrix[k] - expected[k]) < 1e-12, "matrix_rotate: %d of %d", n_pairs, n);
}

void check_inverse_factor(int n) {
    Random random(static_cast<unsigned>(n));
    Doubles factor(n * n), gram(n * n), inverse(n * n);
    for (int i = 0; i < n; i++)
        for (int k = 0; k <= i; k++) factor[i * n + k] = i == k ? 2 + random.value() : random.value() / n;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            for (int k = 0; k <= std::min(i, j); k++) gram[i * n + j] += factor[i * n + k] * factor[j * n + k];
    succeed(prh_inverse_factor(gram.data(), n, inverse.data()));
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            double product = 0;
            for (int k = 0; k < n; k++) product += inverse[i * n + k] * factor[k * n + j];
            check(std::abs(product - (i == j)) < 1e-9, "inverse_factor of %d", n);
        }
}

// Round by round, by looking at everything that is left.
void check_match(int n_rows, int n_columns, bool is_symmetric, int n_rounds) {
    Random random(static_cast<unsigned>(n_rows * 100 + n_columns));
    Doubles gain(n_rows * n_columns);
    for (double& value : gain) value = random.below(20) - 3;   // with equal ones
    if (is_symmetric)
        for (int r = 0; r < n_rows; r++)
            for (int c = 0; c <= r; c++) gain[r * n_rows + c] = r == c ? 0 : gain[c * n_rows + r];
    std::vector<std::int32_t> first(std::min(n_rows, n_columns)), second(first.size());
    std::int64_t n_pairs;
    succeed(prh_match(gain.data(), n_rows, n_columns, is_symmetric, n_rounds, first.data(), second.data(), &n_pairs));
    std::vector<bool> row_taken(n_rows), column_taken(n_columns);
    std::vector<std::pair<int, int>> expected;
    for (int round = 0; round < n_rounds; round++) {
        const std::size_t before = expected.size();
        const auto row_taken_before = row_taken, column_taken_before = column_taken;
        for (int r = 0; r < n_rows; r++)
            for (int c = is_symmetric ? r + 1 : 0; c < n_columns; c++) {
                const double own = gain[r * n_columns + c];
                bool is_best = own > 0 && !row_taken_before[r] && !column_taken_before[c];
                for (int k = 0; k < n_columns; k++)
                    is_best &= column_taken_before[k] || gain[r * n_columns + k] < own + (k >= c ? 1e-9 : 0) || k == c;
                for (int k = 0; k < n_rows; k++)
                    is_best &= row_taken_before[k] || gain[k * n_columns + c] < own + (k >= r ? 1e-9 : 0) || k == r;
                if (!is_best) continue;
                expected.emplace_back(r, c);
                row_taken[r] = column_taken[c] = true;
                if (is_symmetric) row_taken[c] = column_taken[r] = true;
            }
        if (expected.size() == before) break;
    }
    bool same = n_pairs == static_cast<std::int64_t>(expected.size());
    for (std::size_t p = 0; same && p < expected.size(); p++)
        same = first[p] == expected[p].first && second[p] == expected[p].second;
    check(same, "match: %d rows, %d columns", n_rows, n_columns);
}

void check_gather(int n, int n_bytes, int k) {
    Random random(static_cast<unsigned>(n * 1000 + n_bytes * 10 + k));
    Bytes stored(static_cast<std::size_t>(n) * k * n_bytes), codes(stored.size());
    for (std::uint8_t& byte : stored) byte = static_cast<std::uint8_t>(random.below(256));
    std::vector<const std::uint8_t*> addresses(n * k);
    const auto from = random.order(n * k);
    for (int c = 0; c < n * k; c++) addresses[c] = c % 7 == 3 ? nullptr : &stored[from[c] * n_bytes];
    succeed(prh_gather(n * k, n_bytes, addresses.data(), codes.data()));
    for (int c = 0; c < n * k; c++)
        for (int b = 0; b < n_bytes; b++)
            check(codes[c * n_bytes + b] == (addresses[c] ? addresses[c][b] : 0), "gather: %d of %d bytes", c, n_bytes);

}

void check_failures() {
    const Transform untrained(3, 3);
    const Floats x(3);
    Floats y(3);
    Bytes codes(1);
    check(prh_transform_apply(untrained, 1, x.data(), y.data()) == -2, "apply of an untrained transform");
    check(std::strstr(prh_last_failure(), "not trained"), "the message of apply");
    check(prh_transform_encode(untrained, 1, x.data(), codes.data(), nullptr) == -2, "encode of an untrained transform");
    check(std::strstr(prh_last_failure(), "not trained"), "the message of encode");
    check(prh_use_simd_level("none"), "an unknown SIMD level");
}

void check_level() {
    prh_set_thread_source(one_thread);
    for (const int d : {1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 40, 64, 100, 257})
        for (const int n_layers : {0, 1, 2, 7}) check_rotation(d, d, n_layers);
    for (const int d : {17, 40, 100}) {
        check_rotation(d, 1, 5);
        check_rotation(d, d / 2, 5);
        check_rotation(d, d + 3, 6);
        check_rotation(d, 2 * d, 6);
        for (const int d_out : {1, d, d + 3, 2 * d}) check_dense(d, d_out, 5);
        for (const int d_out : {1, 2, 15, 16}) {
            check_rotation(d, d_out, 5, 16);
            check_rotation(d, d_out, 0, d);
            check_dense(d, d_out, 5, 17);
        }
    }
    check_rotation(600, 37, 4, 530);
    for (const int d : {3, 130}) check_threads(d, d, 0);
    check_threads(300, 35, 290);
    prh_set_thread_source(four_threads);
    check_replacing();
    for (const int n : {1, 4, 7, 18})
        for (const int m : {1, 3, 4, 15, 16, 17, 100, 30000}) check_sample(n, m);
    for (const int n : {1, 2, 7, 40, 600}) check_matrix(n, n / 2);
    check_matrix(41, 9);
    for (const int n : {1, 2, 9, 70}) check_inverse_factor(n);
    for (const int n_rounds : {1, 3, 12}) {
        for (const int n_columns : {1, 8, 30}) check_match(11, n_columns, false, n_rounds);
        for (const int n : {1, 2, 9, 30}) check_match(n, n, true, n_rounds);
    }
    for (const int n_bytes : {1, 2, 3, 4, 5, 16, 17})
        for (const int k : {1, 3, 10}) check_gather(9, n_bytes, k);
    check_gather(500, 16, 40);
    check_failures();
    check_joint();
    check_neighbours();
    check_matrices();
    check_scanning();
}

}  // namespace

// Checks all SIMD levels of this CPU, or the one that is named.
int main(int n_arguments, char** arguments) {
    const char* level;
    for (int index = 0; (level = prh_simd_level(index)); index++) {
        if (n_arguments > 1 && std::strcmp(level, arguments[1]) != 0) continue;
        succeed(prh_use_simd_level(level));
        const long before = n_checks;
        check_level();
        std::printf("%s: %ld checks\n", level, n_checks - before);
    }
    if (n_failures) std::fprintf(stderr, "%d checks failed\n", n_failures.load());
    return n_failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
