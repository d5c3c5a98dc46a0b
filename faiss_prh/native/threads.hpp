// Threads for one call. No pool: nothing is left behind to meet a fork or an unload.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "failure.hpp"

namespace prh {

int max_threads();

// Runs work(begin, end) on 0 .. n, `chunk` at a time. Each thread makes its own `work` and takes the next chunk when it
// has done one: cores that others keep busy take fewer.
template <class MakeWork>
void parallel_for(std::int64_t n, std::int64_t chunk, const MakeWork& make_work) {
    const std::int64_t n_chunks = (n + chunk - 1) / chunk;
    const std::int64_t n_threads = n_chunks <= 1 ? 1 : std::min<std::int64_t>(n_chunks, max_threads());
    if (n_threads == 1) {
        make_work()(0, n);
        return;
    }
    std::atomic<std::int64_t> next{0};
    // As text: what GCC 11 and later need for a std::exception_ptr is not in the libstdc++ of older systems.
    std::atomic<bool> failed{false};
    char failure[kFailureSize];
    const auto run = [&] {
        const char* const message = caught([&] {
            auto work = make_work();
            for (std::int64_t begin; (begin = next.fetch_add(chunk)) < n;) work(begin, std::min(n, begin + chunk));
        });
        if (!message) return;
        next = n;
        if (!failed.exchange(true)) std::memcpy(failure, message, std::strlen(message) + 1);
    };
    std::vector<std::thread> others;
    others.reserve(n_threads);
    try {
        for (std::int64_t thread = 1; thread < n_threads; thread++) others.emplace_back(run);
    } catch (const std::exception&) {
        // No more threads to be had: those there are do the work.
    }
    run();
    for (std::thread& thread : others) thread.join();
    if (failed) throw_again(failure);
}

}  // namespace prh
