// Pipeline ranks whose stages are alike. Most stages of a deep pipeline have the same blocks: their ranks run the same
// kernels for a micro-batch, and differ in the order of the schedule's actions and in whom they talk to. So one dry run
// serves all of them, and a pipeline of 64 ranks needs about five.
// Read next: ops/plan/alike.cpp; ops/plan/predict.cpp, which uses it.
#pragma once

#include <vector>

#include "parallel/comm/trace.h"
#include "parallel/pipeline/schedules.h"
#include "train/options/options.h"
#include "train/step/rank_memory.h"

namespace trireme::plan {

pipeline::Schedule schedule_of(const TrainOptions& options);

/// Whether two ranks run the same kernels, and communicate as often and as much.
bool runs_the_same(const Trace& a, const Trace& b);

/// For each pipeline rank one that is like it; this may be itself. Of those that are alike it is the one that keeps most
/// micro-batches at a time, and so needs most memory. `threads`: that make dry runs of one micro-batch. Throws what the
/// model throws.
///
/// With ZeRO 3 no two ranks are alike: the weights that are gathered depend on the order of actions.
std::vector<int> alike_ranks(const TrainOptions& options, const DryProgram& program, int threads);

/// The trace of pipeline rank `to` of a mesh, made from that of `from`, which is like it. The other coordinates of both
/// are 0.
Trace moved(const Trace& trace, const MeshShape& mesh, const pipeline::Schedule& schedule, int from, int to);

}  // namespace trireme::plan
