// Which blocks of a model live on which pipeline stage.
#pragma once

#include <string_view>
#include <vector>

namespace trireme::pipeline {

/// Blocks first, first + 1, ..., first + count - 1.
struct BlockRange {
  int first = 0;
  int count = 0;
  int end() const { return first + count; }
  bool contains(int block) const { return block >= first && block < end(); }  ///< whether the stage has this block
  bool operator==(const BlockRange&) const = default;
};

/// One range per stage, in the order of stages.
using StagePlan = std::vector<BlockRange>;

/// The costs of the parts of a model for a micro-batch, in any common unit, such as FLOPs per token.
struct StageCosts {
  double embedding = 0;  ///< of the first stage's work before its blocks
  double block = 1;
  double head = 0;                  ///< of the last stage's work after its blocks
  std::vector<double> blocks = {};  ///< of every block, if they differ; empty: `block` for each
};

/// Splits `layers` blocks over `stages`, in order, at least one each. Minimises the cost of the most expensive stage,
/// which all others wait for. Ties: blocks of equal cost go to stages 1, 2, ..., stages - 2 first, then to stage 0, and
/// to the last stage last; for blocks of different costs the split with the least sum of squared stage costs is taken.
/// Throws ExitCode::usage when a stage would get no block.
StagePlan stage_plan(int layers, int stages, const StageCosts& costs = {});

/// The plan that --stage-layers names: "3,3,2", one count per stage. Throws ExitCode::usage unless it is a list of
/// `stages` counts from 1 whose sum is `layers`.
StagePlan listed_stage_plan(std::string_view list, int layers, int stages);

}  // namespace trireme::pipeline
