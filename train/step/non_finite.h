// Finds the origin of the first NaN or infinity of a step, by combining what each rank found
// (train/step/gradient_watch.h). From its origin, a NaN spreads down the backward pass to earlier stages, and to all
// ranks that exchange activations with this one. So for each dp coordinate, the ranks are named that found it in the
// earliest micro-batch; among these, those on the last stage; among these, those with the first gradient.
// Read next: train/loop/guards.h.
#pragma once

#include <string>

#include "parallel/mesh/mesh.h"
#include "train/options/options.h"
#include "train/step/gradient_watch.h"

namespace trireme {

/// "blocks.1.mlp.up.weight on rank 2 (dp=1,tp=0,pp=0), micro-batch 0, samples 12-13"; empty if no rank found anything.
/// The same on every rank. Collective over the mesh.
std::string origin_of(const NonFinite& found, const DeviceMesh& mesh);

/// What to change if training diverges: "lower --lr or --clip, raise --warmup-steps, use --dtype f32,
/// or look at the samples".
std::string steadier(const TrainOptions& options);

/// "12-15, 20": sorted, with consecutive numbers joined.
std::string ranges(const std::vector<std::int64_t>& numbers);

}  // namespace trireme
