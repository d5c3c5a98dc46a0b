// The C interface of the native library: everything that Python sees.
// Functions that can fail return null for success, or a message that stays until the thread's next failure.
#pragma once

#include <cstdint>

#ifdef _WIN32
#define PRH_API extern "C" __declspec(dllexport)
#else
#define PRH_API extern "C" __attribute__((visibility("default")))
#endif

// A faiss::VectorTransform; Faiss's own destructor deletes it.
struct PrhTransform;

// Called by Faiss's `train`. Writes an empty string to `failure` for success, or what went wrong. What it returns does not
// count: of a Python function that raises, ctypes returns anything.
using PrhTrainCallback = void (*)(PrhTransform* transform, std::int64_t n, const float* x, char* failure,
                                  std::int64_t failure_size);

PRH_API const char* prh_version();

// SIMD levels, from the plainest to the best that this CPU runs; null past the last one.
PRH_API const char* prh_simd_level(int index);
PRH_API const char* prh_use_simd_level(const char* name);
PRH_API const char* prh_active_simd_level();

// Where the number of threads is asked for at each call (OpenMP's function, or null for one thread).
PRH_API void prh_set_thread_source(int (*max_threads)());

// A linear one is a faiss::LinearTransform, with its dense matrix, which Faiss writes and clones.
PRH_API PrhTransform* prh_transform_new(int d_in, int d_out, bool is_linear, PrhTrainCallback train);
// For one that Faiss has never seen.
PRH_API void prh_transform_free(PrhTransform* transform);

// Replaces what the transform does: a rotation of n dimensions, of which the first d_in are the input and the others
// zero; kept[0 .. n_kept] are the output, or what `tail`, d_out rows of n_kept values, is multiplied with to give it. Without
// a tail (null), n_kept is d_out. Layer l holds the rotations layer_ends[l-1] .. layer_ends[l]; rotation r
// turns dimensions i[r] and j[r] by theta[r]. The caller has checked that a layer's pairs are disjoint. Other threads may
// use the transform meanwhile, but Faiss must not write or clone it, and only one thread may set a linear one.
PRH_API const char* prh_transform_set(PrhTransform* transform, int n, int n_layers, const std::int64_t* layer_ends,
                                      const std::int32_t* i, const std::int32_t* j, const float* theta,
                                      const float* mean, int n_kept, const std::int32_t* kept, const float* tail);

// These return -1 for success, -2 for failure (see prh_last_failure), or the first row that is not finite or too large:
// the square of a norm must stay below 2^121, or distances would overflow. `encode` writes no code of that row and may
// write none after it; `apply` and `reverse` write all rows. A code has ceil(d_out / 8) bytes; `norms`, those of the
// outputs, may be null.
PRH_API std::int64_t prh_transform_encode(const PrhTransform* transform, std::int64_t n, const float* x,
                                          std::uint8_t* codes, float* norms);
PRH_API std::int64_t prh_transform_apply(const PrhTransform* transform, std::int64_t n, const float* x, float* y);
PRH_API std::int64_t prh_transform_reverse(const PrhTransform* transform, std::int64_t n, const float* y, float* x);
PRH_API const char* prh_last_failure();

// The inner loops of learning, on a sample kept dimension-major: n rows of m values.
PRH_API const char* prh_rows_fill(float* rows, std::int64_t n, std::int64_t m, std::int64_t first,
                                    std::int64_t count, const float* x);
PRH_API const char* prh_rows_centre(float* rows, std::int64_t n, std::int64_t m, double* means);
PRH_API const char* prh_rows_covariances(const float* rows, std::int64_t m, std::int64_t n_pairs,
                                           const std::int32_t* i, const std::int32_t* j, double* covariances);
PRH_API const char* prh_rows_rotate(float* rows, std::int64_t m, std::int64_t n_pairs, const std::int32_t* i,
                                      const std::int32_t* j, const float* theta);

// Rotates the disjoint pairs of rows i and j of a matrix of n rows and n columns, and then of its columns.
PRH_API const char* prh_matrix_rotate(double* matrix, std::int64_t n, std::int64_t n_pairs, const std::int32_t* i,
                                      const std::int32_t* j, const float* theta);
// The inverse of the lower triangular factor (Cholesky's) of a symmetric matrix, of whose lower half nothing is left.
PRH_API const char* prh_inverse_factor(double* gram, std::int64_t n, double* inverse);
// Pairs of a row and a column that are each other's best by a positive gain, then others among those left, and so on. Of
// equal ones the first is the best. Of a symmetric matrix, whose diagonal is zero: disjoint pairs first < second.
PRH_API const char* prh_match(const double* gain, std::int64_t n_rows, std::int64_t n_columns, bool is_symmetric,
                              std::int64_t n_rounds, std::int32_t* first, std::int32_t* second, std::int64_t* n_pairs);

// Learning angles together, on a sample in tiles: 16 vectors each, n rows of 16 values, the last tile filled up with zeros.
// Rotation r turns rows i[r] and j[r] by theta[r], one rotation after the other.
PRH_API const char* prh_tiles_turn(std::int64_t n, std::int64_t n_tiles, std::int64_t n_rotations,
                                   const std::int32_t* i, const std::int32_t* j, const float* theta, const float* x,
                                   float* y);
// The slopes of angles, given those (g) of the values y behind the rotations. Undoes the rotations on y and g.
PRH_API const char* prh_tiles_slopes(std::int64_t n, std::int64_t n_tiles, std::int64_t n_rotations,
                                     const std::int32_t* i, const std::int32_t* j, const float* theta, float* y,
                                     float* g, double* slopes);
// The products y of a matrix of n rows and columns with the vectors x; and the n × n sums, over all vectors, of the products
// of a value of g and a value of x.
PRH_API const char* prh_tiles_multiply(std::int64_t n, std::int64_t n_tiles, const float* matrix, const float* x,
                                       float* y);
PRH_API const char* prh_tiles_outer(std::int64_t n, std::int64_t n_tiles, const float* g, const float* x,
                                    double* products);
// Writes to g `magnitude` with the sign of each value y, and gives the sum of |y|.
PRH_API const char* prh_tiles_signs(std::int64_t n, std::int64_t n_tiles, const float* y, float magnitude, float* g,
                                    double* magnitudes);
// Soft signs tanh(y / softness) of m vectors, in an order of this library's own, and the sum of |y|. `signs` has room for
// m vectors, whose dimensions are filled up to a multiple of 16 with zeros that the caller has put there.
PRH_API const char* prh_soft_signs(std::int64_t n, std::int64_t m, const float* y, float softness, float* signs,
                                   double* magnitudes);
// Inner products of the signs of each vector v and its partners, partners[v * k] .. partners[v * k + k].
PRH_API const char* prh_sign_products(std::int64_t n, std::int64_t m, const float* signs, std::int64_t k,
                                      const std::int32_t* partners, double* products);
// The slopes g of the values y, given those of the products (`weights`) and of each |y| (`magnitude`). The places of
// `partners` where vector v stands are incident[ends[v - 1]] .. incident[ends[v]]; `owners` are the vectors whose they are.
PRH_API const char* prh_sign_slopes(std::int64_t n, std::int64_t m, const float* signs, std::int64_t k,
                                    const std::int32_t* partners, const std::int64_t* ends,
                                    const std::int32_t* incident, const std::int32_t* owners, const float* weights,
                                    float softness, float magnitude, const float* y, float* g);

// The k <= m nearest of m others to each of n vectors of d values, as keys in ascending order: distance << 32 | number.
// Values must be whole numbers; distances, and all that is added up on the way, must stay below 2^24. If both are the same
// vectors, it takes half the time.
PRH_API const char* prh_nearest(std::int64_t d, std::int64_t n, const float* x, std::int64_t m, const float* others,
                                std::int64_t k, std::int64_t* keys);
// The same for n rows of m inner products: of distances own[row] + norms[c] - 2 products[c].
PRH_API const char* prh_nearer(std::int64_t n, std::int64_t m, const float* products, const float* own,
                               const float* norms, std::int64_t k, std::int64_t* keys);

// Writes to `c`, of n_left × n_right values, the products of each column of `left` and each of `right`, both of m rows. If
// both are the same, it takes half the time. Sums do not depend on the number of threads, but on the SIMD level.
PRH_API const char* prh_column_products(std::int64_t m, std::int64_t n_left, const double* left, std::int64_t n_right,
                                        const double* right, double* c);
// Adds m > 0 vectors of n values to the mean of `count` others, and to the sums of products of what they are off it.
PRH_API const char* prh_moments_add(std::int64_t m, std::int64_t n, const float* x, std::int64_t count, double* mean,
                                    double* scatter);

// Copies `count` records of `size` bytes from the given addresses; zeros where an address is null.
PRH_API const char* prh_gather(std::int64_t count, std::int64_t size, const std::uint8_t* const* addresses,
                               std::uint8_t* records);

// What to search, and how results are ranked.
struct PrhScan {
    const PrhTransform* transform;   // of queries; null: they come transformed
    std::int64_t d;                  // values of a query
    // The codes where Faiss keeps them: in a faiss::InvertedLists or, if that is null, one after the other.
    const void* lists;
    const std::uint8_t* codes;
    std::int64_t n_lists, n_codes;   // one list if there are no lists
    std::int64_t code_size, bits;    // bytes from a code to the next, bits of it that count
    const std::uint8_t* coarse;      // a code for each list, one after the other: the nearest are searched
    std::int64_t max_codes;          // no more lists after so many codes; 0: all
    const void* selector;            // a faiss::IDSelector of ids, or null
    const std::int64_t* ids;         // the ids of rows, which are what lists keep; null: they are ids
    std::int64_t n_ids;              // how many; other rows are left out

    // Codes of residuals: a byte behind the code is for the norm, low + step · byte; signs stand for reach times the norm.
    const float* centroids;          // a row of `bits` values for each list; null: codes of whole vectors
    float low, step, reach, margin;
    std::int32_t is_product;         // inner products instead of squared distances; those with `offset` taken away
    std::int32_t is_isometric;       // whether estimates are on the same scale as distances of vectors
    std::int32_t wants_places;       // (list << 32 | position) instead of rows

    std::int64_t n_rows;             // what is beside the codes has rows 0 .. n_rows; others do not come back
    std::int64_t shortlist;          // how many are ranked again
    // By bytes beside the codes of whole vectors, which stand for norms and products with the offset.
    const std::uint8_t* beside;
    std::int64_t beside_size;
    const float *norms, *products;
    const float* offset;             // what the transforms make of zero: for inner products
    // By vectors, of vector_size bytes each.
    const std::uint8_t* vectors;
    void* const* computers;          // a faiss::DistanceComputer for each thread; null: the vectors are d floats
    std::int64_t vector_size;
};

struct PrhQueries {
    std::int64_t n, n_probes;
    const float* x;                  // n rows of d values: if they are to be transformed, or ranked by vectors
    const float* z;                  // n rows of `bits` values: if they come transformed
    const std::int64_t* probes;      // n rows of n_probes numbers of lists, of which those that are no list are left out;
                                     // null: the lists of the nearest codes (`coarse`), or of the nearest centroids
    std::int64_t unusable;           // what a search writes: a query that is not finite or too large, or -1
};

// Where a faiss::InvertedLists has three of its virtual functions.
PRH_API void prh_set_slots(int list_size, int get_codes, int get_ids);

// The k best of each query, the best first: their distances, or inner products, and where they are. Where there are fewer,
// the largest float (or the least) and -1.
PRH_API const char* prh_search(const PrhScan* scan, PrhQueries* queries, std::int64_t k, float* D, std::int64_t* I);
// The same among n_rows given rows a query, of which negative ones are left out.
PRH_API const char* prh_rank(const PrhScan* scan, PrhQueries* queries, std::int64_t n_rows,
                             const std::int64_t* rows, std::int64_t k, float* D, std::int64_t* I);
// All within a radius; `limits` has room for n + 1. The caller frees D and I. For codes of residuals only.
PRH_API const char* prh_range_search(const PrhScan* scan, PrhQueries* queries, float radius, std::int64_t* limits,
                                     float** D, std::int64_t** I);
PRH_API void prh_free(void* memory);
