// Records from where Faiss keeps them.
#include <cstring>

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
