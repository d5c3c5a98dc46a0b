// The product of vectors with a small dense matrix. Included once for each SIMD level, by kernel.cpp.
#pragma once

#include "kernel.hpp"
#include "simd.hpp"

namespace prh {
namespace {

// Columns whose part of a block of rows stays in the first-level cache while all vectors pass by.
constexpr int kColumns = 256;

// Adds to Vectors × Registers values of y, `stride` apart, the products with `columns` columns. Every value is summed in
// the order of the columns, however many vectors there are.
template <class V, int Vectors, int Registers>
inline void multiply_add(int columns, const float* matrix, const float* x, std::int64_t d_in, float* y, int stride) {
    V sums[Vectors][Registers];
    for (int v = 0; v < Vectors; v++)
        for (int r = 0; r < Registers; r++) sums[v][r] = load<V>(y + v * stride + r * lanes<V>);
    for (int k = 0; k < columns; k++, matrix += kRowBlock) {
        V of_rows[Registers];
        for (int r = 0; r < Registers; r++) of_rows[r] = load<V>(matrix + r * lanes<V>);
        for (int v = 0; v < Vectors; v++)
            for (int r = 0; r < Registers; r++) sums[v][r] += x[v * d_in + k] * of_rows[r];
    }
    for (int v = 0; v < Vectors; v++)
        for (int r = 0; r < Registers; r++) store(y + v * stride + r * lanes<V>, sums[v][r]);
}

template <class V>
void multiply_with(const Matrix& matrix, std::int64_t n, const float* x, float* y) {
    constexpr int kTogether = 6, kRegisters = 2, kStep = kRegisters * lanes<V>;
    const std::int64_t d_in = matrix.d_in, d_out = matrix.d_out;
    float sums[kMostMultiplied * kRowBlock];
    for (std::int64_t row = 0; row < d_out; row += kRowBlock) {
        const std::int64_t rows = d_out - row < kRowBlock ? d_out - row : kRowBlock;
        for (std::int64_t at = 0; at < n * kRowBlock; at++) sums[at] = 0;
        for (std::int64_t k = 0; k < d_in; k += kColumns) {
            const int columns = static_cast<int>(d_in - k < kColumns ? d_in - k : kColumns);
            const float* const block = matrix.values + row * d_in + k * kRowBlock;
            for (int part = 0; part < kRowBlock; part += kStep) {
                std::int64_t v = 0;
                for (; v + kTogether <= n; v += kTogether)
                    multiply_add<V, kTogether, kRegisters>(columns, block + part, x + v * d_in + k, d_in,
                                                           sums + v * kRowBlock + part, kRowBlock);
                for (; v < n; v++)
                    multiply_add<V, 1, kRegisters>(columns, block + part, x + v * d_in + k, d_in,
                                                   sums + v * kRowBlock + part, kRowBlock);
            }
        }
        for (std::int64_t v = 0; v < n; v++)
            __builtin_memcpy(y + v * d_out + row, sums + v * kRowBlock, rows * sizeof(float));
    }
}

}  // namespace
}  // namespace prh
