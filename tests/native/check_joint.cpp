// Learning angles together, against plain loops in double precision.
#include "check.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace {

constexpr int kTile = 16;
constexpr float kSoftness = 0.4f;

using Places = std::vector<std::int32_t>;

std::int64_t at(std::int64_t n, std::int64_t row, std::int64_t v) {
    return (v / kTile * n + row) * kTile + v % kTile;
}

std::int64_t tiles_of(std::int64_t m) {
    return (m + kTile - 1) / kTile;
}

// Every value of m vectors in tiles; zeros in the rest of the last tile.
Floats random_tiles(Random& random, int n, int m) {
    Floats tiles(tiles_of(m) * n * kTile);
    for (int v = 0; v < m; v++)
        for (int row = 0; row < n; row++) tiles[at(n, row, v)] = random.value();
    return tiles;
}

void check_turning(int n, int m, int n_rotations) {
    Random random(static_cast<unsigned>(n * 1000 + m));
    const Floats x = random_tiles(random, n, m), g = random_tiles(random, n, m);
    Places i, j;
    for (int r = 0; r < n_rotations; r++) {
        const auto order = random.order(n);
        i.push_back(order[0]);
        j.push_back(order[1]);
    }
    Floats theta = random.values(n_rotations), y(x.size());
    for (float& angle : theta) angle *= 3.2f;
    succeed(prh_tiles_turn(n, tiles_of(m), n_rotations, i.data(), j.data(), theta.data(), x.data(), y.data()));

    // The value Σ g·y, its slope by each angle, and the values before and behind.
    Doubles before(x.begin(), x.end()), slopes_of_y(g.begin(), g.end()), expected(n_rotations);
    const auto turn = [&](Doubles& values, int r, double sign) {
        const double cosine = std::cos(theta[r]), sine = sign * std::sin(theta[r]);
        for (int v = 0; v < m; v++) {
            double &a = values[at(n, i[r], v)], &b = values[at(n, j[r], v)];
            const double u = a, w = b;
            a = cosine * u - sine * w;
            b = sine * u + cosine * w;
        }
    };
    for (int r = 0; r < n_rotations; r++) turn(before, r, 1);
    for (std::size_t k = 0; k < y.size(); k++) check(std::abs(y[k] - before[k]) < 1e-5, "tiles_turn: %d of %d", m, n);
    for (int r = n_rotations; r-- > 0;) {
        for (int v = 0; v < m; v++)
            expected[r] += slopes_of_y[at(n, j[r], v)] * before[at(n, i[r], v)] -
                           slopes_of_y[at(n, i[r], v)] * before[at(n, j[r], v)];
        turn(before, r, -1);
        turn(slopes_of_y, r, -1);
    }
    Floats undone = y, g_undone = g;
    Doubles slopes(n_rotations);
    succeed(prh_tiles_slopes(n, tiles_of(m), n_rotations, i.data(), j.data(), theta.data(), undone.data(),
                             g_undone.data(), slopes.data()));
    for (int r = 0; r < n_rotations; r++)
        check(std::abs(slopes[r] - expected[r]) < 1e-5 * (m + 10), "tiles_slopes: %d of %d", m, n);
    for (std::size_t k = 0; k < y.size(); k++)
        check(std::abs(undone[k] - x[k]) < 1e-5 && std::abs(g_undone[k] - slopes_of_y[k]) < 1e-5, "what is undone");
}

void check_products(int n, int m) {
    Random random(static_cast<unsigned>(n * 1000 + m));
    const Floats x = random_tiles(random, n, m), g = random_tiles(random, n, m), matrix = random.values(n * n);
    Floats y(x.size());
    Doubles sums(n * n);
    succeed(prh_tiles_multiply(n, tiles_of(m), matrix.data(), x.data(), y.data()));
    succeed(prh_tiles_outer(n, tiles_of(m), g.data(), x.data(), sums.data()));
    for (int r = 0; r < n; r++)
        for (int v = 0; v < m; v++) {
            double expected = 0;
            for (int c = 0; c < n; c++) expected += static_cast<double>(matrix[r * n + c]) * x[at(n, c, v)];
            check(std::abs(y[at(n, r, v)] - expected) < 1e-5 * (n + 10), "tiles_multiply: %d of %d", m, n);
        }
    for (int r = 0; r < n; r++)
        for (int c = 0; c < n; c++) {
            double expected = 0;
            for (int v = 0; v < m; v++) expected += static_cast<double>(g[at(n, r, v)]) * x[at(n, c, v)];
            check(std::abs(sums[r * n + c] - expected) < 1e-5 * (m + 10), "tiles_outer: %d of %d", m, n);
        }
}

void check_signs(int n, int m, int k) {
    Random random(static_cast<unsigned>(n * 1000 + m * 10 + k));
    Floats y = random_tiles(random, n, m);
    for (int v = 0; v < m; v++) y[at(n, random.below(n), v)] *= v % 3 == 0 ? 0.0f : 1e5f;
    Places partners(m * k), incident(m * k), owners(m * k);
    for (std::int32_t& partner : partners) partner = random.below(m);
    std::iota(incident.begin(), incident.end(), 0);
    std::stable_sort(incident.begin(), incident.end(), [&](auto a, auto b) { return partners[a] < partners[b]; });
    Numbers ends(m);
    for (int pair = 0; pair < m * k; pair++) {
        owners[pair] = incident[pair] / k;
        for (int v = partners[pair]; v < m; v++) ends[v]++;
    }
    Doubles signs_of(m * n), products(m * k), slopes(m * n);
    double magnitude = 0, magnitudes;
    for (int v = 0; v < m; v++)
        for (int row = 0; row < n; row++) {
            magnitude += std::abs(y[at(n, row, v)]);
            signs_of[v * n + row] = std::tanh(static_cast<double>(y[at(n, row, v)]) / kSoftness);
        }
    Floats signs(m * ((n + 15) / 16 * 16)), g(y.size());
    succeed(prh_soft_signs(n, m, y.data(), kSoftness, signs.data(), &magnitudes));
    check(std::abs(magnitudes - magnitude) <= 1e-6 * magnitude, "soft_signs: %d of %d: magnitudes", m, n);
    succeed(prh_sign_products(n, m, signs.data(), k, partners.data(), products.data()));
    const Floats weights = random.values(m * k);
    for (int pair = 0; pair < m * k; pair++) {
        const double *own = &signs_of[pair / k * n], *other = &signs_of[partners[pair] * n];
        const double product = std::inner_product(own, own + n, other, 0.0);
        check(std::abs(products[pair] - product) < 1e-4, "sign_products: %d of %d", m, n);
        for (int row = 0; row < n; row++) {
            slopes[pair / k * n + row] += weights[pair] * other[row];
            slopes[partners[pair] * n + row] += weights[pair] * own[row];
        }
    }
    succeed(prh_sign_slopes(n, m, signs.data(), k, partners.data(), ends.data(), incident.data(), owners.data(),
                            weights.data(), kSoftness, 0.5f, y.data(), g.data()));
    for (int v = 0; v < m; v++)
        for (int row = 0; row < n; row++) {
            const double value = y[at(n, row, v)], sign = signs_of[v * n + row];
            const double expected =
                    slopes[v * n + row] * (1 - sign * sign) / kSoftness + (value > 0 ? 0.5 : value < 0 ? -0.5 : 0);
            check(std::abs(g[at(n, row, v)] - expected) < 1e-4 * (k + 3), "sign_slopes: %d of %d", m, n);
        }
    for (std::int64_t v = m; v < tiles_of(m) * kTile; v++)
        for (int row = 0; row < n; row++) check(g[at(n, row, v)] == 0, "slopes of what fills the last tile");
}

void check_hard_signs(int n, int m) {
    Random random(static_cast<unsigned>(n * 1000 + m));
    const Floats y = random_tiles(random, n, m);
    Floats g(y.size());
    double magnitude = 0, expected = 0;
    succeed(prh_tiles_signs(n, tiles_of(m), y.data(), 0.5f, g.data(), &magnitude));
    for (std::size_t k = 0; k < y.size(); k++) {
        check(g[k] == (std::signbit(y[k]) ? -0.5f : 0.5f), "tiles_signs: %d of %d", m, n);
        expected += std::abs(y[k]);
    }
    check(std::abs(magnitude - expected) <= 1e-6 * expected, "tiles_signs: %d of %d: magnitudes", m, n);
}

}  // namespace

void check_joint() {
    for (const int n : {2, 3, 16, 33, 100})
        for (const int m : {1, 15, 16, 17, 100, 700}) check_turning(n, m, 40), check_products(n, m), check_hard_signs(n, m);
    for (const int n : {1, 3, 15, 16, 17, 32, 40, 64, 100, 130})
        for (const int m : {1, 15, 16, 17, 300})
            for (const int k : {1, 4, 7}) check_signs(n, m, k);
}
