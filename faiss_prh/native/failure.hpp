// No exception may pass into ctypes.
#pragma once

#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>

namespace prh {

constexpr std::size_t kFailureSize = 1000;
constexpr char kOutOfMemory[] = "out of memory";

// Keeps a message until the thread's next failure, and gives it back.
const char* set_last_failure(const char* message);

// Runs `work`. Gives null, or what `keep` gives for the message of what it threw.
template <class Work, class Keep>
const char* caught(const Work& work, const Keep& keep) {
    try {
        work();
        return nullptr;
    } catch (const std::bad_alloc&) {
        return keep(kOutOfMemory);
    } catch (const std::exception& error) {
        return keep(error.what());
    }
}

template <class Work>
const char* caught(const Work& work) {
    return caught(work, set_last_failure);
}

// Throws what `caught` gave a message of.
[[noreturn]] inline void throw_again(const char* message) {
    if (std::strcmp(message, kOutOfMemory) == 0) throw std::bad_alloc();
    throw std::runtime_error(message);
}

}  // namespace prh
