// The headers of GCC 11 and later call this function, which the libstdc++ of older systems does not have. With a copy in
// the library, what is built on a new system runs on those as well (manylinux_2_28).
#include <new>

#if defined(__GLIBCXX__) && defined(__linux__)
namespace std {
__attribute__((weak)) void __throw_bad_array_new_length() {
    throw bad_array_new_length();
}
}  // namespace std
#endif
