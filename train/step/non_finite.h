// Where the first NaN or infinity of a step came from: what the ranks saw by themselves (train/step/gradient_watch.h),
// put together. From its origin a NaN goes down the backward pass, to earlier stages, and to all ranks that exchange
// activations with this one. So of the ranks of one dp coordinate those are named that saw it in the earliest
// micro-batch, there on the last stage, and there in the first gradient.
// Read next: train/guards/guards.h.
#pragma once

#include <string>

#include "parallel/mesh/mesh.h"
#include "train/step/gradient_watch.h"

namespace trireme {

/// "blocks.1.mlp.up.weight on rank 2 (dp=1,tp=0,pp=0), micro-batch 0, samples 12-13"; empty when no rank saw anything.
/// The same on every rank; collective over the mesh.
std::string origin_of(const NonFinite& found, const DeviceMesh& mesh);

/// "12-15, 20": numbers in order, runs put together.
std::string ranges(const std::vector<std::int64_t>& numbers);

}  // namespace trireme
