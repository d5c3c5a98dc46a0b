// The hot loops. Compiled once for each SIMD level with PRH_LEVEL (a namespace) and PRH_LANES set.
#include "kernel.hpp"

#include "multiply.hpp"
#include "plain.hpp"
#include "simd.hpp"

namespace prh {
namespace {

using Lane = VectorTypes<PRH_LANES>;

// Values in a cache line: reading whole lines keeps vectors that lie a power of two apart from evicting each other.
constexpr int kLine = 16;

// Above this many dimensions, prefetching the next tile pushes this one out of the second-level cache.
constexpr int kMaxPrefetch = 5000;

// K vector registers hold one row of a tile of K * lanes vectors.
template <class V, int K>
struct Row {
    V v[K];
};

inline void store_bits(std::uint32_t word, int bits, std::uint8_t* to) {
    if (bits == 32)
        __builtin_memcpy(to, &word, sizeof word);
    else
        for (int byte = 0; byte * 8 < bits; byte++) to[byte] = static_cast<std::uint8_t>(word >> 8 * byte);
}

template <class V, int K>
inline void rotate(Row<V, K>& u, Row<V, K>& w, const float* pq) {
    const float p = pq[0], q = pq[1];
    for (int k = 0; k < K; k++) {
        w.v[k] += p * u.v[k];
        u.v[k] += q * w.v[k];
    }
}

// Asks for the input that comes next, a cache line at a time, while there is other work to do.
class Prefetch {
  public:
    Prefetch(const float* begin, const float* end) : at_(begin), end_(end) {}
    void operator()() {
        if (at_ < end_) {
            __builtin_prefetch(at_, 0, 2);
            at_ += kLine;
        }
    }

  private:
    const float *at_, *end_;
};

template <class V, int K>
inline Row<V, K>& at(Row<V, K>* tile, RowOffset offset) {
    return *reinterpret_cast<Row<V, K>*>(reinterpret_cast<char*>(tile) + offset * sizeof(Row<V, K>) / 8);
}

template <class V, int K>
inline Row<V, K> load_row(Row<V, K>* tile, RowOffset offset) {
    const Row<V, K>& from = at(tile, offset);
    Row<V, K> row;
    for (int k = 0; k < K; k++) {   // not as a whole: GCC would copy it by way of the stack
        row.v[k] = from.v[k];
        asm("" : PRH_IN_REGISTER(row.v[k]));   // or GCC would read it from memory again for its second use
    }
    return row;
}

template <class V, int K>
inline void store_row(Row<V, K>* tile, RowOffset offset, const Row<V, K>& row) {
    Row<V, K>& to = at(tile, offset);
    for (int k = 0; k < K; k++) to.v[k] = row.v[k];
}

template <class V, int K>
void rotate_all(const Plan& plan, Row<V, K>* tile, Prefetch prefetch) {
    using R = Row<V, K>;
    const RowOffset* rows = plan.rows;
    const float* pq = plan.coefficients;
    for (std::int64_t n_left = plan.n_walks; n_left > 0; n_left--) {
        const RowOffset further = *rows++;
        prefetch();
        if (further == 1) {   // by far the most common length, without the loop's bookkeeping
            R a = load_row(tile, rows[0]), b = load_row(tile, rows[1]);
            R c = load_row(tile, rows[2]), d = load_row(tile, rows[3]);
            rotate(a, b, pq);
            rotate(c, d, pq + 4);
            rotate(b, c, pq + 2);
            rotate(d, a, pq + 6);
            store_row(tile, rows[0], a);
            store_row(tile, rows[1], b);
            store_row(tile, rows[2], c);
            store_row(tile, rows[3], d);
            rows += 4;
            pq += 8;
            continue;
        }
        const RowOffset first_at = rows[0];
        R first = load_row(tile, first_at), carried = load_row(tile, rows[1]);
        rotate(first, carried, pq);
        if (further == 0) {
            pq += 2;
        } else {
            for (RowOffset step = 0; step < further; step++, rows += 2, pq += 4) {
                R u = load_row(tile, rows[2]), w = load_row(tile, rows[3]);
                prefetch();
                rotate(u, w, pq + 4);
                rotate(carried, u, pq + 2);
                store_row(tile, rows[1], carried);
                store_row(tile, rows[2], u);
                carried = w;
            }
            rotate(carried, first, pq + 2);
            pq += 4;
        }
        store_row(tile, rows[1], carried);
        store_row(tile, first_at, first);
        rows += 2;
    }
}

// Squared norms up to here are safe: scaled, rotated, subtracted from each other and squared, all stays finite. A tile of
// vectors is looked at together, and only one that may hold a larger vector, or one that is not finite, one by one.
constexpr float kLargestInTile = 0x1p120f;
constexpr double kLargest = 0x1p121;

// Not inline, which would crowd the loops that almost never need it.
__attribute__((noinline, cold)) std::int64_t first_unusable_row(std::int64_t n, std::int64_t d, const float* x) {
    for (std::int64_t v = 0; v < n; v++) {
        double squares = 0;
        for (std::int64_t i = 0; i < d; i++) squares += static_cast<double>(x[v * d + i]) * x[v * d + i];
        if (!(squares <= kLargest)) return v;
    }
    return -1;
}

// Fills the tile from `count` vectors. Gives the sum of all their squares.
template <class V, int K>
float load_tile(const Plan& plan, int count, const float* x, Row<V, K>* tile) {
    constexpr int L = lanes<V>;
    const std::int64_t d = plan.d_in;
    V squares = {};
    std::int64_t i = 0;
    if (count == K * L)
        for (; i + kLine <= d; i += kLine)
            for (int k = 0; k < K; k++)
#pragma GCC unroll 4
                for (int at = 0; at < kLine; at += 4) {
                    const float* const centre_at = plan.centre + i + at;
                    const float* const scale_at = plan.scale + i + at;
                    const V centre = load_fours<V>(centre_at, centre_at), scale = load_fours<V>(scale_at, scale_at);
                    V r[4];
                    for (int v = 0; v < 4; v++) {
                        const float* const from = x + (k * L + v) * d + i + at;
                        r[v] = load_fours<V>(from, from + 4 * d);
                    }
                    squares += (r[0] * r[0] + r[1] * r[1]) + (r[2] * r[2] + r[3] * r[3]);
                    for (int v = 0; v < 4; v++) r[v] = (r[v] - centre) * scale;
                    transpose_fours(r);
                    for (int v = 0; v < 4; v++) tile[i + at + v].v[k] = r[v];
                }
    float total = 0;
    for (int v = 0; v < L; v++) total += squares[v];
    for (; i < d; i++)
        for (int v = 0; v < K * L; v++) {
            const float value = v < count ? x[v * d + i] : 0.0f;
            total += value * value;
            tile[i].v[v / L][v % L] = (value - plan.centre[i]) * plan.scale[i];
        }
    for (; i < plan.n + kSpareRows; i++) tile[i] = {};
    return total;
}

// One vector alone.
float load_tile(const Plan& plan, int, const float* x, Row<float, 1>* tile) {
    float squares[8] = {};
    std::int64_t i = 0;
    for (; i < plan.d_in; i++) {
        squares[i % 8] += x[i] * x[i];
        tile[i].v[0] = (x[i] - plan.centre[i]) * plan.scale[i];
    }
    for (; i < plan.n + kSpareRows; i++) tile[i] = {};
    float total = 0;
    for (const float part : squares) total += part;
    return total;
}

template <class V, int K>
inline __attribute__((always_inline)) void store_signs(const Plan& plan, int count, const Row<V, K>* tile, std::uint8_t* codes) {
    const int code_size = (plan.d_out + 7) / 8;
    for (int i = 0; i < plan.d_out; i += 32) {
        const int bits = plan.d_out - i < 32 ? plan.d_out - i : 32;
        using Word = typename VectorTypes<lanes<V>>::Word;
        Word words[K] = {};
        for (int bit = bits - 1; bit >= 0; bit--) {
            const Row<V, K>& row = tile[plan.output_rows[i + bit]];
            for (int k = 0; k < K; k++) words[k] += words[k] - (Word)(row.v[k] >= 0);   // true is -1
        }
        std::uint32_t word[K * lanes<V>];
        __builtin_memcpy(word, words, sizeof word);
        for (int v = 0; v < count; v++) store_bits(word[v], bits, codes + v * code_size + i / 8);
    }
}

void store_signs(const Plan& plan, int, const Row<float, 1>* tile, std::uint8_t* codes) {
    for (int i = 0; i < plan.d_out; i += 8) {
        const int bits = plan.d_out - i < 8 ? plan.d_out - i : 8;
        int byte = 0;
        for (int bit = 0; bit < bits; bit++) byte |= (tile[plan.output_rows[i + bit]].v[0] >= 0) << bit;
        codes[i / 8] = static_cast<std::uint8_t>(byte);
    }
}

template <class V, int K>
void store_values(const Plan& plan, int count, const Row<V, K>* tile, float* y) {
    constexpr int L = lanes<V>;
    const std::int64_t d = plan.d_out;
    std::int64_t i = 0;
    if (count == K * L)
        for (; i + 4 <= d; i += 4)
            for (int k = 0; k < K; k++) {
                V r[4];
                for (int v = 0; v < 4; v++) r[v] = tile[plan.output_rows[i + v]].v[k] + plan.output_offset[i + v];
                transpose_fours(r);
                for (int v = 0; v < 4; v++) {
                    float* const to = y + (k * L + v) * d + i;
                    store_fours(to, to + 4 * d, r[v]);
                }
            }
    for (; i < d; i++)
        for (int v = 0; v < count; v++)
            y[v * d + i] = tile[plan.output_rows[i]].v[v / L][v % L] + plan.output_offset[i];
}

void store_values(const Plan& plan, int, const Row<float, 1>* tile, float* y) {
    for (int i = 0; i < plan.d_out; i++) y[i] = tile[plan.output_rows[i]].v[0] + plan.output_offset[i];
}

inline Double4 load_double(const float* from) {
    return __builtin_convertvector(load<VectorTypes<4>::Float>(from), Double4);
}

// Not inline, which would crowd the loop of those who do not want norms.
template <class V, int K>
__attribute__((noinline)) void store_norms(const Plan& plan, int count, const Row<V, K>* tile, float* norms) {
    constexpr int kParts = K * lanes<V> / 4;
    Double4 squares[kParts] = {};
    for (int i = 0; i < plan.d_out; i++) {
        const float* const row = reinterpret_cast<const float*>(tile + plan.output_rows[i]);
        for (int part = 0; part < kParts; part++) {
            const Double4 values = load_double(row + 4 * part);
            squares[part] += values * values;
        }
    }
    for (int v = 0; v < count; v++) norms[v] = static_cast<float>(__builtin_sqrt(squares[v / 4][v % 4]));
}

void store_norms(const Plan& plan, int, const Row<float, 1>* tile, float* norms) {
    double squares = 0;
    for (int i = 0; i < plan.d_out; i++) {
        const double value = tile[plan.output_rows[i]].v[0];
        squares += value * value;
    }
    *norms = static_cast<float>(__builtin_sqrt(squares));
}

template <class V, int K>
struct Width {
    using TileRow = Row<V, K>;
};

// Calls work(width, first vector, number of vectors) for one tile after another until it returns false, and gives
// the tile's first vector (n if none). One or two vectors are cheaper one by one than as a mostly empty tile. Every
// width computes the same values.
template <class Work>
std::int64_t for_each_tile(std::int64_t n, Work work) {
    for (std::int64_t v = 0, count; v < n; v += count) {
        const std::int64_t left = n - v;
        bool go_on;
        if (left > kTile / 2) {
            count = left < kTile ? left : kTile;
            go_on = work(Width<Lane::Float, kTile / PRH_LANES>{}, v, static_cast<int>(count));
        } else if (left > 2) {
            count = left;
            go_on = work(Width<Lane::Float, kTile / 2 / PRH_LANES>{}, v, static_cast<int>(count));
        } else {
            count = 1;
            go_on = work(Width<float, 1>{}, v, 1);
        }
        if (!go_on) return v;
    }
    return n;
}

Prefetch next_tile(const Plan& plan, std::int64_t n, std::int64_t v, const float* x) {
    const std::int64_t d = plan.d_in, begin = v + kTile, end = begin + kTile < n ? begin + kTile : n;
    return d <= kMaxPrefetch && begin < n ? Prefetch(x + begin * d, x + end * d) : Prefetch(x, x);
}

// Two of these, because a loop that may also store norms has a register less for the signs.
template <bool kWithNorms>
std::int64_t encode_all(const Plan& plan, std::int64_t n, const float* x, std::uint8_t* codes, float* norms,
                        float* buffer) {
    const std::int64_t d = plan.d_in, code_size = (plan.d_out + 7) / 8;
    const std::int64_t stopped = for_each_tile(n, [&](auto width, std::int64_t v, int count) {
        auto* tile = reinterpret_cast<typename decltype(width)::TileRow*>(buffer);
        const float squares = load_tile(plan, count, x + v * d, tile);
        if (!(squares <= kLargestInTile) && first_unusable_row(count, d, x + v * d) >= 0) return false;
        rotate_all(plan, tile, next_tile(plan, n, v, x));
        store_signs(plan, count, tile, codes + v * code_size);
        if constexpr (kWithNorms) store_norms(plan, count, tile, norms + v);
        return true;
    });
    return stopped == n ? -1 : stopped + first_unusable_row(n - stopped, d, x + stopped * d);
}

// Calls work(v), which gives a sum of squares, for each vector. Gives the first that is not finite or too large, or -1.
template <class Work>
std::int64_t for_each_plain(const Plan& plan, std::int64_t n, const float* x, Work work) {
    std::int64_t unusable = -1;
    for (std::int64_t v = 0; v < n; v++)
        if (!(work(v) <= kLargestInTile) && unusable < 0 && first_unusable_row(1, plan.d_in, x + v * plan.d_in) == 0)
            unusable = v;
    return unusable;
}

std::int64_t encode(const Plan& plan, std::int64_t n, const float* x, std::uint8_t* codes, float* norms,
                    float* buffer) {
    if (plan.is_plain && !norms)
        return for_each_plain(plan, n, x, [&](std::int64_t v) {
            return encode_plain<Lane::Float>(plan, x + v * plan.d_in, codes + v * ((plan.d_out + 7) / 8));
        });
    return (norms ? encode_all<true> : encode_all<false>)(plan, n, x, codes, norms, buffer);
}

std::int64_t apply(const Plan& plan, std::int64_t n, const float* x, float* y, float* buffer) {
    if (plan.is_plain)
        return for_each_plain(plan, n, x, [&](std::int64_t v) {
            return apply_plain<Lane::Float>(plan, x + v * plan.d_in, y + v * plan.d_out);
        });
    std::int64_t unusable = -1;
    for_each_tile(n, [&](auto width, std::int64_t v, int count) {
        auto* tile = reinterpret_cast<typename decltype(width)::TileRow*>(buffer);
        const float squares = load_tile(plan, count, x + v * plan.d_in, tile);
        if (!(squares <= kLargestInTile) && unusable < 0) {
            const std::int64_t row = first_unusable_row(count, plan.d_in, x + v * plan.d_in);
            if (row >= 0) unusable = v + row;
        }
        rotate_all(plan, tile, next_tile(plan, n, v, x));
        store_values(plan, count, tile, y + v * plan.d_out);
        return true;
    });
    return unusable;
}

void multiply(const Matrix& matrix, std::int64_t n, const float* x, float* y) {
    multiply_with<Lane::Float>(matrix, n, x, y);
}

// Copies `count` vectors into columns first .. first + count of dimensions n_begin .. n_end.
void rows_fill(float* rows, std::int64_t n_begin, std::int64_t n_end, std::int64_t n, std::int64_t m,
                 std::int64_t first, std::int64_t count, const float* x) {
    constexpr int L = PRH_LANES;
    const std::int64_t n_whole = n_begin + (n_end - n_begin) / 4 * 4, count_whole = count / L * L;
    for (std::int64_t c = 0; c < count_whole; c += L)
        for (std::int64_t i = n_begin; i < n_whole; i += 4) {
            Lane::Float r[4];
            for (int v = 0; v < 4; v++) {
                const float* const from = x + (c + v) * n + i;
                r[v] = load_fours<Lane::Float>(from, from + 4 * n);
            }
            transpose_fours(r);
            for (int v = 0; v < 4; v++) store(rows + (i + v) * m + first + c, r[v]);
        }
    for (std::int64_t i = n_begin; i < n_end; i++)
        for (std::int64_t c = i < n_whole ? count_whole : 0; c < count; c++) rows[i * m + first + c] = x[c * n + i];
}

inline double sum(const Double4 (&parts)[4]) {
    const Double4 all = (parts[0] + parts[1]) + (parts[2] + parts[3]);
    return (all[0] + all[1]) + (all[2] + all[3]);
}

double rows_covariance(const float* a, const float* b, std::int64_t m) {
    Double4 parts[4] = {};
    std::int64_t k = 0;
    for (; k + 16 <= m; k += 16)
        for (int p = 0; p < 4; p++) parts[p] += load_double(a + k + 4 * p) * load_double(b + k + 4 * p);
    double total = sum(parts);
    for (; k < m; k++) total += static_cast<double>(a[k]) * b[k];
    return total / m;
}

// Subtracts the mean and gives it.
double rows_centre(float* row, std::int64_t m) {
    Double4 parts[4] = {};
    std::int64_t k = 0;
    for (; k + 16 <= m; k += 16)
        for (int p = 0; p < 4; p++) parts[p] += load_double(row + k + 4 * p);
    double total = sum(parts);
    for (; k < m; k++) total += row[k];
    const double mean = total / m;
    for (k = 0; k < m; k++) row[k] = static_cast<float>(row[k] - mean);
    return mean;
}

}  // namespace

namespace PRH_LEVEL {
extern const Kernel kernel = {encode,    apply,       multiply,        first_unusable_row,
                              rows_fill, rows_centre, rows_covariance};
}

}  // namespace prh
