// The optimizers of --optimizer: what each is called, keeps and refuses, and how it is made. To add one: write it
// (optim/optimizer.h), and add its row in train/options/optimizer_kinds.cpp.
// Read next: train/options/optimizer_kinds.cpp.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "optim/optimizer.h"
#include "parallel/mesh/mesh.h"
#include "train/options/options.h"

namespace trireme {

/// An optimizer of --optimizer.
struct OptimizerKind {
  std::string name;
  std::string about = {};  ///< for the help of --optimizer
  /// Its line in the table before training, without weight decay and clipping. `lr`: the largest.
  std::function<std::string(const OptimizerOptions&, double lr)> row;
  /// Throws ExitCode::usage for options that contradict each other.
  std::function<void(const OptimizerOptions&, Device)> check;
  std::function<std::unique_ptr<optim::Optimizer>(const TrainOptions&, const ShardList&, const DeviceMesh&)> make;
};

const std::vector<OptimizerKind>& optimizer_kinds();  ///< all of them
/// The one that the options name.
const OptimizerKind& kind_of(const OptimizerOptions& options);
std::vector<std::string> optimizer_names();  ///< of all of them
std::string optimizer_help();                ///< of --optimizer

}  // namespace trireme
