// Which blocks of a model live on which pipeline stage.
#pragma once

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

/// Splits `layers` blocks over `stages`, in order; every stage gets layers / stages of them. What is left over, one
/// block each, goes to stages 1, 2, ..., stages - 2, then to stage 0: the last stage also has the logits and the
/// loss, and the first the embeddings. Throws ExitCode::usage when a stage would get no block.
std::vector<BlockRange> stage_plan(int layers, int stages);

}  // namespace trireme::pipeline
