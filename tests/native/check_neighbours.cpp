// Finding the nearest of vectors of whole numbers, against sorting all of them.
#include "check.hpp"

#include <algorithm>

namespace {

Floats whole_numbers(Random& random, int count, int least, int below) {
    Floats all(count);
    for (float& value : all) value = static_cast<float>(least + random.below(below - least));
    return all;
}

void check_keys(const char* what, int m, int k, std::vector<std::int64_t> expected, const std::int64_t* keys) {
    std::sort(expected.begin(), expected.end());
    check(std::equal(keys, keys + k, expected.begin()), "%s: %d of %d", what, k, m);
}

void check_nearest(int n, int m, int d, int k) {
    Random random(static_cast<unsigned>(n * 1000 + m * 10 + k));
    const Floats others = whole_numbers(random, m * d, -3, 4);   // many are equally near
    const bool is_symmetric = n == m;
    const Floats x = is_symmetric ? Floats() : whole_numbers(random, n * d, -3, 4);
    const float* const of_rows = is_symmetric ? others.data() : x.data();
    Numbers keys(n * k);
    succeed(prh_nearest(d, n, of_rows, m, others.data(), k, keys.data()));
    for (int row = 0; row < n; row++) {
        std::vector<std::int64_t> expected;
        for (int c = 0; c < m; c++) {
            std::int64_t distance = 0;
            for (int at = 0; at < d; at++) {
                const auto difference = static_cast<std::int64_t>(of_rows[row * d + at] - others[c * d + at]);
                distance += difference * difference;
            }
            expected.push_back(distance << 32 | c);
        }
        check_keys("nearest", m, k, expected, &keys[row * k]);
    }
}

void check_nearer(int n, int m, int k) {
    Random random(static_cast<unsigned>(n * 1000 + m * 10 + k));
    const Floats products = whole_numbers(random, n * m, -60, 40);
    const Floats own = whole_numbers(random, n, 100, 130), norms = whole_numbers(random, m, 100, 130);
    Numbers keys(n * k);
    succeed(prh_nearer(n, m, products.data(), own.data(), norms.data(), k, keys.data()));
    for (int row = 0; row < n; row++) {
        std::vector<std::int64_t> expected;
        for (int c = 0; c < m; c++)
            expected.push_back(static_cast<std::int64_t>(own[row] + norms[c] - 2 * products[row * m + c]) << 32 | c);
        check_keys("nearer", m, k, expected, &keys[row * k]);
    }
}

}  // namespace

void check_neighbours() {
    for (const int m : {1, 31, 33, 191, 192, 500})
        for (const int d : {1, 16, 45})
            for (const int k : {1, 6, 13}) {
                if (k > m) continue;
                for (const int n : {1, 12, 193, m}) check_nearest(n, m, d, k);
                check_nearer(20, m, k);
            }
}
