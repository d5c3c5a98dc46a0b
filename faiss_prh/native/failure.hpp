// No exception may pass into ctypes.
#pragma once

#include <exception>
#include <new>

namespace prh {

// Keeps a message until the thread's next failure, and gives it back.
const char* set_last_failure(const char* message);

// Runs `work`. Gives null, or the message of what it threw.
template <class Work>
const char* caught(const Work& work) {
    try {
        work();
        return nullptr;
    } catch (const std::bad_alloc&) {
        return set_last_failure("out of memory");
    } catch (const std::exception& error) {
        return set_last_failure(error.what());
    }
}

}  // namespace prh
