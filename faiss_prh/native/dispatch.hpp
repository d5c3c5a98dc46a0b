#pragma once

#include "kernel.hpp"

namespace prh {

// The kernels of the SIMD level in use.
const Kernel& kernel();

}  // namespace prh
