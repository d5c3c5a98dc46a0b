// Threads for one call. No pool: nothing is left behind to meet a fork or an unload.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

#include "failure.hpp"

namespace prh {

int max_threads();

// Runs work(begin, end) on 0 .. n, `chunk` at a time. Each thread has its own `work` and takes the next chunk when it
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
    // Not by set_last_failure, for which a new thread needs memory.
    const auto keep = [&](const char* message) {
        next = n;
        if (!failed.exchange(true)) std::snprintf(failure, sizeof failure, "%s", message);
        return message;
    };
    // Made by this thread: in a new one, to throw takes memory itself, and the C library ends a process that has none.
    std::vector<decltype(make_work())> works;
    works.reserve(n_threads);
    for (std::int64_t thread = 0; thread < n_threads; thread++) works.push_back(make_work());
    const auto run = [&](std::int64_t thread) {
        caught([&] {
            auto& work = works[thread];
            for (std::int64_t begin; (begin = next.fetch_add(chunk)) < n;) work(begin, std::min(n, begin + chunk));
        }, keep);
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
    if (failed) throw_again(failure);
}

}  // namespace prh
