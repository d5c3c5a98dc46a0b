#pragma once

#include "kernel.hpp"
#include "scan.hpp"

namespace prh {

// The kernels of the SIMD level in use.
const Kernel& kernel();
const ScanKernel& scan_kernel();

}  // namespace prh
