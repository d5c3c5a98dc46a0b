// Vectors of numbers that begin with a cache line, and are not set to zero to begin with.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace prh {

constexpr std::align_val_t kCacheLine{64};

template <class T>
struct CacheLines {
    using value_type = T;
    CacheLines() = default;
    template <class U>
    CacheLines(const CacheLines<U>&) {}
    // Windows has no std::aligned_alloc; C++17's operator new is everywhere.
    T* allocate(std::size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), kCacheLine)); }
    void deallocate(T* from, std::size_t) { ::operator delete(from, kCacheLine); }
    template <class U>
    void construct(U* place) {
        ::new (static_cast<void*>(place)) U;
    }
    friend bool operator==(const CacheLines&, const CacheLines&) { return true; }
    friend bool operator!=(const CacheLines&, const CacheLines&) { return false; }
};

template <class T>
using AlignedVector = std::vector<T, CacheLines<T>>;

}  // namespace prh
