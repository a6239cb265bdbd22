// Finds the best mesh: predicts every mesh of a number of ranks, and sorts those that fit by the time of a step.
// Read next: ops/plan/predict.h, examples/plan.cpp.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ops/plan/predict.h"

namespace trireme::plan {

/// A mesh that fits.
struct Choice {
  MeshShape mesh;
  Prediction prediction;
  RankMemory memory;
};
struct Search {
  std::vector<Choice> choices;                                ///< the fastest first
  std::vector<std::pair<MeshShape, std::string>> impossible;  ///< and why
  std::vector<std::pair<MeshShape, RankMemory>> too_large;    ///< the smallest first
};

/// All meshes of `ranks` ranks, with `ep` up to `experts`.
std::vector<MeshShape> meshes(int ranks, int experts);

/// `options_on` returns the options of a run on a mesh, and throws ExitCode::usage if there can be none.
Search search(const std::vector<MeshShape>& meshes, const std::function<TrainOptions(const MeshShape&)>& options_on,
              const DryProgram& program, const MachineModel& machine, double memory);

}  // namespace trireme::plan
