#pragma once

#include "joint.hpp"
#include "kernel.hpp"
#include "near.hpp"
#include "products.hpp"
#include "scan.hpp"

namespace prh {

// The kernels of the SIMD level in use.
const Kernel& kernel();
const TileKernel& tile_kernel();
const JointKernel& joint_kernel();
const NearKernel& near_kernel();
const ProductKernel& product_kernel();
const ScanKernel& scan_kernel();

}  // namespace prh
