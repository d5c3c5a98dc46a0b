// What all calls share: which SIMD level runs, on how many threads, and what went wrong last.
#include "dispatch.hpp"

#include <atomic>
#include <cstring>
#include <vector>

#include "failure.hpp"
#include "prh.h"
#include "threads.hpp"

namespace prh {
namespace {

struct Level {
    const char* name;
    const Kernel& kernel;
    const TileKernel& tile_kernel;
    const JointKernel& joint_kernel;
    const NearKernel& near_kernel;
    const ProductKernel& product_kernel;
    const ScanKernel& scan_kernel;
};

#ifdef PRH_HAVE_AVX512
bool has_avx512() {
#ifdef PRH_EMULATE_AVX512
    return true;
#else
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vpopcntdq");
#endif
}
#endif

const std::vector<Level>& levels() {
    static const std::vector<Level> found = [] {
        std::vector<Level> all{{"baseline", baseline::kernel, baseline::tile_kernel, baseline::joint_kernel,
                                baseline::near_kernel, baseline::product_kernel, baseline::scan_kernel}};
#ifdef PRH_HAVE_AVX2
        if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("popcnt"))
            all.push_back({"avx2", avx2::kernel, avx2::tile_kernel, avx2::joint_kernel, avx2::near_kernel,
                           avx2::product_kernel, avx2::scan_kernel});
#endif
#ifdef PRH_HAVE_AVX512   // transforms gain nothing from it
        if (all.size() > 1 && has_avx512())
            all.push_back({"avx512", avx2::kernel, avx512::tile_kernel, avx2::joint_kernel, avx512::near_kernel,
                           avx512::product_kernel, avx512::scan_kernel});
#endif
        return all;
    }();
    return found;
}

std::atomic<const Level*>& active() {
    static std::atomic<const Level*> level{&levels().back()};
    return level;
}

std::atomic<int (*)()> thread_source{nullptr};

thread_local char last_failure[kFailureSize] = {};

}  // namespace

const Kernel& kernel() {
    return active().load(std::memory_order_relaxed)->kernel;
}

const TileKernel& tile_kernel() {
    return active().load(std::memory_order_relaxed)->tile_kernel;
}

const JointKernel& joint_kernel() {
    return active().load(std::memory_order_relaxed)->joint_kernel;
}

const NearKernel& near_kernel() {
    return active().load(std::memory_order_relaxed)->near_kernel;
}

const ProductKernel& product_kernel() {
    return active().load(std::memory_order_relaxed)->product_kernel;
}

const ScanKernel& scan_kernel() {
    return active().load(std::memory_order_relaxed)->scan_kernel;
}

const char* set_last_failure(const char* message) {
    std::strncpy(last_failure, message, sizeof last_failure - 1);
    return last_failure;
}

int max_threads() {
    int (*const source)() = thread_source.load(std::memory_order_relaxed);
    return source ? std::max(1, source()) : 1;
}

}  // namespace prh

const char* prh_version() {
    return PRH_VERSION;
}

const char* prh_simd_level(int index) {
    const auto& all = prh::levels();
    return index >= 0 && index < static_cast<int>(all.size()) ? all[index].name : nullptr;
}

const char* prh_use_simd_level(const char* name) {
    for (const prh::Level& level : prh::levels())
        if (std::strcmp(level.name, name) == 0) {
            prh::active().store(&level);
            return nullptr;
        }
    return "no such SIMD level on this CPU";
}

const char* prh_active_simd_level() {
    return prh::active().load(std::memory_order_relaxed)->name;
}

const char* prh_last_failure() {
    return prh::last_failure;
}

void prh_set_thread_source(int (*max_threads)()) {
    prh::thread_source.store(max_threads);
}
