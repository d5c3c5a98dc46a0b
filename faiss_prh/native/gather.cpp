// The inner loops of re-ranking: codes from where Faiss keeps them, and float queries against them.
#include <cstring>

#include "dispatch.hpp"
#include "failure.hpp"
#include "prh.h"
#include "threads.hpp"

const char* prh_gather(std::int64_t count, std::int64_t size, const std::uint8_t* const* addresses,
                       std::uint8_t* records) {
    constexpr std::int64_t kChunk = 1 << 14;
    return prh::caught([&] {
        prh::parallel_for(count, kChunk, [&] {
            return [&](std::int64_t begin, std::int64_t end) {
                for (std::int64_t r = begin; r < end; r++)
                    if (addresses[r])
                        std::memcpy(records + r * size, addresses[r], size);
                    else
                        std::memset(records + r * size, 0, size);
            };
        });
    });
}

const char* prh_signed_sums(std::int64_t n, std::int64_t n_bytes, const float* z, std::int64_t k,
                            const std::uint8_t* codes, float* sums) {
    constexpr std::int64_t kChunkBytes = 1 << 18;
    return prh::caught([&] {
        prh::parallel_for(n, kChunkBytes / (k * n_bytes) + 1, [&] {
            return [&](std::int64_t begin, std::int64_t end) {
                for (std::int64_t q = begin; q < end; q++)
                    prh::kernel().signed_sums(z + q * n_bytes * 8, n_bytes, k, codes + q * k * n_bytes, sums + q * k);
            };
        });
    });
}
