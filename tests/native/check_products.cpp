// Products of matrices in double precision, and second moments, against plain loops.
#include "check.hpp"

#include <cmath>

namespace {

Doubles doubles(Random& random, int count) {
    Doubles all(count);
    for (double& value : all) value = random.value();
    return all;
}

// The products of the columns of m rows of n values and of m rows of k values.
Doubles expected_products(int m, int n, const Doubles& left, int k, const Doubles& right) {
    Doubles products(n * k);
    for (int row = 0; row < m; row++)
        for (int i = 0; i < n; i++)
            for (int j = 0; j < k; j++) products[i * k + j] += left[row * n + i] * right[row * k + j];
    return products;
}

void check_same(const char* what, const Doubles& found, const Doubles& expected, int m) {
    for (std::size_t at = 0; at < found.size(); at++)
        check(std::abs(found[at] - expected[at]) < 1e-12 * (m + 1), "%s of %d rows: %zu", what, m, at);
}

void check_column_products(int m, int n, int k) {
    Random random(static_cast<unsigned>(m * 1000 + n * 10 + k));
    const Doubles left = doubles(random, m * n), right = doubles(random, m * k);
    Doubles products(n * k, 7.0), squares(n * n, 7.0);
    succeed(prh_column_products(m, n, left.data(), k, right.data(), products.data()));
    check_same("column_products", products, expected_products(m, n, left, k, right), m);
    succeed(prh_column_products(m, n, left.data(), n, left.data(), squares.data()));
    check_same("column_products with each other", squares, expected_products(m, n, left, n, left), m);
}

// Vectors in two parts, against all at once.
void check_moments(int first, int second, int n) {
    Random random(static_cast<unsigned>(first * 1000 + second * 10 + n));
    const int m = first + second;
    Floats x = random.values(m * n);
    for (int at = 0; at < first * n; at++) x[at] += 3;
    Doubles mean(n), scatter(n * n), expected_mean(n), off(m * n);
    succeed(prh_moments_add(first, n, x.data(), 0, mean.data(), scatter.data()));
    succeed(prh_moments_add(second, n, x.data() + first * n, first, mean.data(), scatter.data()));
    for (int at = 0; at < m * n; at++) expected_mean[at % n] += x[at] / static_cast<double>(m);
    for (int at = 0; at < m * n; at++) off[at] = x[at] - expected_mean[at % n];
    check_same("mean", mean, expected_mean, 10);
    check_same("scatter", scatter, expected_products(m, n, off, n, off), 10 * m);
}

}  // namespace

void check_matrices() {
    for (const int m : {1, 2, 255, 256, 257, 700})
        for (const int n : {1, 8, 9, 24, 50, 110}) {
            for (const int k : {1, 23, 49}) check_column_products(m, n, k);
            check_moments(m, 300, n);
        }
}
