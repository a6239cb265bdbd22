// What the grader of lab 7 measures with: the framework's own planner (docs/planner.md), on the machine of
// examples/machines/h100_sxm_ndr.json. Memory is what a dry run of the training program allocates, rank by rank; time
// is a simulation of what it does. Read next: examples/labs/07_plan/planner.cpp, then grader.cpp beside this file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "examples/labs/07_plan/lab.h"
#include "train/step/rank_memory.h"

namespace trireme::labs::planning {

inline constexpr const char* machine_file = "examples/machines/h100_sxm_ndr.json";

/// So many devices of the machine.
Cluster cluster_of(int devices, double memory);

/// One step.
struct Measured {
  double seconds = 0;
  std::vector<RankMemory> stages;  ///< of a rank of each pipeline stage
  std::string parts;               ///< of the slowest rank's step, the largest first

  double peak() const;  ///< bytes of the fullest rank
};
Measured measured(const Model& model, const Setting& setting);

/// Bytes that a rank of the first stage sends along each axis in two steps. Ratios of them are what matters.
Growth bytes_sent(const Model& model, const Setting& setting);

/// All ways to make a step of `batch` sequences on the cluster's devices: axes that are powers of two, tp up to 16,
/// micro-batches of 1, 2 and 4, with and without recomputation.
std::vector<Setting> candidates(const Model& model, const Cluster& cluster, int batch, int zero);

/// Seconds of the fastest of these candidates that fits, as the planner's search finds it; nothing if none fits.
std::optional<double> fastest(const Model& model, const Cluster& cluster, int batch, int zero);

}  // namespace trireme::labs::planning
