// The optimizers of --optimizer: what each is called, keeps and refuses. To add one: write it (optim/optimizer.h), and
// add its row here and in train/step/setup.cpp, which makes it.
// Read next: train/options/optimizer_kinds.cpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "train/options/options.h"

namespace trireme {

/// An optimizer of --optimizer.
struct OptimizerKind {
  std::string name;
  /// Its line in the table before training, without weight decay and clipping. `lr`: the largest.
  std::function<std::string(const OptimizerOptions&, double lr)> row;
  /// Throws ExitCode::usage for options that contradict each other.
  std::function<void(const OptimizerOptions&, Device)> check;
};

const std::vector<OptimizerKind>& optimizer_kinds();  ///< all of them
/// The one that the options name.
const OptimizerKind& kind_of(const OptimizerOptions& options);
std::vector<std::string> optimizer_names();  ///< of all of them

}  // namespace trireme
