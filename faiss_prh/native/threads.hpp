// Threads for one call. No pool: nothing is left behind to meet a fork or an unload.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

namespace prh {

int max_threads();

// Runs work(begin, end) on parts of 0 .. n, multiples of `grain` and at least `min_part`, one for each thread.
template <class Work>
void parallel_for(std::int64_t n, std::int64_t grain, std::int64_t min_part, const Work& work) {
    const std::int64_t most = std::max<std::int64_t>(1, n / std::max<std::int64_t>(1, min_part));
    const std::int64_t n_parts = most == 1 ? 1 : std::min<std::int64_t>(most, max_threads());
    if (n_parts == 1) return work(0, n);
    const std::int64_t part = (n + n_parts * grain - 1) / (n_parts * grain) * grain;
    std::vector<std::exception_ptr> errors(n_parts);
    const auto guarded = [&](std::int64_t p) noexcept {
        try {
            if (p * part < n) work(p * part, std::min(n, (p + 1) * part));
        } catch (...) {
            errors[p] = std::current_exception();
        }
    };
    std::vector<std::thread> others;
    others.reserve(n_parts);
    std::int64_t started = 1;
    try {
        for (; started < n_parts; started++) others.emplace_back(guarded, started);
    } catch (const std::exception&) {
        // No more threads to be had: this one does the rest.
    }
    guarded(0);
    for (std::int64_t p = started; p < n_parts; p++) guarded(p);
    for (std::thread& thread : others) thread.join();
    for (const std::exception_ptr& error : errors)
        if (error) std::rethrow_exception(error);
}

}  // namespace prh
