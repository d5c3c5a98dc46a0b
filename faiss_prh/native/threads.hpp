// Threads for one call. No pool: nothing is left behind to meet a fork or an unload.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

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
    std::vector<std::exception_ptr> errors(n_threads);
    const auto run = [&](std::int64_t thread) noexcept {
        try {
            const auto work = make_work();
            for (std::int64_t begin; (begin = next.fetch_add(chunk)) < n;) work(begin, std::min(n, begin + chunk));
        } catch (...) {
            errors[thread] = std::current_exception();
            next = n;
        }
    };
    std::vector<std::thread> others;
    others.reserve(n_threads);
    try {
        for (std::int64_t thread = 1; thread < n_threads; thread++) others.emplace_back(run, thread);
    } catch (const std::exception&) {
        // No more threads to be had: those there are do the work.
    }
    run(0);
    for (std::thread& thread : others) thread.join();
    for (const std::exception_ptr& error : errors)
        if (error) std::rethrow_exception(error);
}

}  // namespace prh
