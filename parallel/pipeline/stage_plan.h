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
  bool contains(int block) const { return block >= first && block < end(); }
  bool operator==(const BlockRange&) const = default;
};

/// One range per stage, in the order of stages.
using StagePlan = std::vector<BlockRange>;

/// What a micro-batch costs on the parts of a model, in any one unit, such as FLOPs per token.
struct StageCosts {
  double embedding = 0;  ///< of what the first stage does before its blocks
  double block = 1;
  double head = 0;                  ///< of what the last stage does after its blocks
  std::vector<double> blocks = {};  ///< of every block, where they differ; empty: `block` for each
};

/// Splits `layers` blocks over `stages`, in order, at least one each, so that the most expensive stage, which all
/// others wait for, is as cheap as can be. Where costs leave a choice, blocks that cost the same go to stages 1, 2,
/// ..., stages - 2 first, then to stage 0, and to the last stage last; of blocks that do not, the split is taken whose
/// stages are most alike (least sum of squared costs). Throws ExitCode::usage when a stage would get no block.
StagePlan stage_plan(int layers, int stages, const StageCosts& costs = {});

/// The plan that --stage-layers names: "3,3,2", one count per stage. Throws ExitCode::usage for what is not a list of
/// counts from 1, for more or fewer than `stages`, or for a sum that is not `layers`.
StagePlan listed_stage_plan(std::string_view list, int layers, int stages);

}  // namespace trireme::pipeline
