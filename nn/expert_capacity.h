// Capacity: how many tokens of a sequence an expert computes, and which.
//
// A limit bounds the work of the busiest expert. It is set per sequence, not per batch: what a micro-batch or a rank
// happens to hold must not change which tokens are dropped. And places are given out in the order of the sequence,
// position by position and within a token its first choice first, so that whether a token finds a place depends only on
// tokens before it: a limit that a later token could take away would tell the model about its future.
//
// A dropped choice adds nothing; the token's other choices, the shared experts and the residual stream remain.
// In evaluation and generation nothing is dropped: there is no batch to balance, and T is not what it was in training.
#pragma once

#include "nn/experts_options.h"
#include "parallel/mesh/mesh.h"

namespace trireme {
class Tensor;
}

namespace trireme::nn {

/// ceil(factor * K * T / E): tokens of one sequence of `length` that an expert takes.
std::int64_t expert_capacity(const ExpertsOptions& options, std::int64_t length);

/// expert [B, T/cp, K] i32 with -1 in the place of each choice that comes after `capacity` others of its expert in its
/// sequence, of which this cp rank holds zigzag(T, cp, rank). Collective over cp.
Tensor drop_beyond(const Tensor& expert, std::int64_t experts, std::int64_t capacity, const DeviceMesh& mesh);

}  // namespace trireme::nn
