// The memory of one rank of a training run: measured in one that runs, and in a dry run (core/dry_run.h), which needs
// neither the other ranks nor the memory.
// Read next: ops/plan/rank_memory.cpp, tests/plan/memory_test.cpp, which compares the two.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>

#include "core/memory.h"
#include "models/model.h"
#include "train/options/options.h"
#include "train/step/trainer.h"

namespace trireme {

/// Bytes: what is there after the last step, and the most that was there at once during the steps.
struct RankMemory {
  std::array<MemoryUse, memory_categories> categories{};
  MemoryUse total;
  std::array<std::int64_t, memory_categories> at_peak{};
};

/// How a rank makes its model, and its samples.
struct RankProgram {
  std::function<std::unique_ptr<Model>(std::shared_ptr<const DeviceMesh> mesh)> model;
  std::function<Batch(const BatchPlan& plan, int microbatch)> batch;
};

/// Trains `steps` steps as one rank of `world`. Collective.
RankMemory measured_memory(const TrainOptions& options, const RankProgram& program,
                           const std::shared_ptr<ProcessGroup>& world, int steps = 2);

/// The same, of rank `rank` of the mesh of the options, by a dry run.
RankMemory predicted_memory(const TrainOptions& options, const RankProgram& program, int rank, int steps = 2);

}  // namespace trireme
