// Dropout whose mask is a function of the sample and of the element's place in it, so that it is the same on any mesh.
// Read next: nn/module.h (Dropout), nn/lora.cpp.
#pragma once

#include <cstdint>

#include "core/tensor.h"
#include "nn/build.h"

namespace trireme::nn {

/// Which part of the whole [B, T, F] a rank has, besides the samples.
struct SamplePart {
  Parallelism tokens;              ///< T is cut over cp, and under sequence parallelism over tp
  std::int64_t first_feature = 0;  ///< of F
  std::int64_t features = 0;       ///< F
};

/// x with probability p replaced by 0, else divided by 1 - p; `name`, of the layer, names the stream of random numbers.
/// Of a tensor with other dims than three, such as [B, F], each rank must hold whole samples. Throws
/// ExitCode::internal if run_state()->first_sample was not set.
Tensor dropout_in_samples(const Tensor& x, double p, const Build& build, const std::string& name,
                          const SamplePart& part);

}  // namespace trireme::nn
