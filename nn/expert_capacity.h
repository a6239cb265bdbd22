// Capacity: how many tokens of a sequence an expert computes, and which.
//
// A limit bounds the work of the busiest expert. It applies per sequence, not per batch, so that which tokens are
// dropped does not depend on what a micro-batch or a rank holds. Places are given out position by position, and within
// a token in the order of its choices. So whether a token gets a place depends only on earlier tokens. If a later token
// could take the place away, the model would learn about its future.
//
// A dropped choice adds nothing; the token's other choices, the shared experts and the residual stream remain.
// In evaluation and generation nothing is dropped: there is no batch to balance, and T differs from that in training.
// Read next: nn/expert_dispatch.h.
#pragma once

#include "nn/experts_options.h"
#include "parallel/mesh/mesh.h"

namespace trireme {
class Tensor;
}

namespace trireme::nn {

/// ceil(factor * K * T / E): tokens of one sequence of `length` that an expert takes.
std::int64_t expert_capacity(const ExpertsOptions& options, std::int64_t length);

/// expert [B, T/cp, K] i32 -> the same, with -1 for each choice that comes after `capacity` others of its expert in its
/// sequence. This cp rank holds the positions zigzag(T, cp, rank). Collective over cp.
Tensor drop_beyond(const Tensor& expert, std::int64_t experts, std::int64_t capacity, const DeviceMesh& mesh);

}  // namespace trireme::nn
