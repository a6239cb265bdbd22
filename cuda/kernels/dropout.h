// Dropout (Srivastava et al. 2014) whose mask is never stored: element e of the whole tensor is kept when
// random_uniform(seed, stream, e) >= p, by the same Philox function as on the CPU (core/random.h). So the mask is the
// same on every device and for every sharding, and the gradient is the same kernel applied to dy. Contract: dropout of
// core/kernels.h, for float, bf16 and f16. Bytes per element of b bytes: 2 b. About 33 instructions, more than half of
// them for the Philox block that four neighbours share; three times as many if a shard's rows do not divide into
// pieces.
#pragma once

#include "cuda/kernels/strided.h"

namespace trireme::cuda {

/// The position of a dense local tensor in the whole one.
struct DropoutPlace {
  std::int64_t start;  ///< index in the whole tensor of local element 0
  Strided<1> view;     ///< the local shape, with the strides of the whole tensor
};
/// `local`: the local shape; it begins at `begin` of a tensor of shape `whole`. Runs on the host.
DropoutPlace dropout_place(const Shape& local, const Shape& whole, const Shape& begin);

/// y = x / (1 - p) where kept, else 0; dense, y may be x.
template <class T>
void dropout(const T* x, T* y, double p, std::uint64_t seed, std::uint64_t stream_id, const DropoutPlace& place,
             Stream stream = nullptr);

}  // namespace trireme::cuda
