// ExpertDispatch: brings tokens to the ranks that hold the experts they chose, and the answers back.
//
//   tokens -> [ep, M, D] by destination -> all-to-all -> [ep, M, D] by source -> rows sorted by expert
//
// and the same way back. The all-to-all exchanges equal pieces: M is the largest number of rows that any rank has for
// any other, which all ranks of the ep group learn from one small all-gather of counts; shorter pieces are padded with
// zeros that nobody reads. A rank whose experts were not chosen takes part like all others, with no rows to compute.
// Without ep nothing is exchanged or padded: rows are sorted by expert, and put back.
// Read next: nn/moe.cpp.
#pragma once

#include <vector>

#include "core/tensor.h"
#include "parallel/mesh/mesh.h"

namespace trireme::nn {

class ExpertDispatch {
 public:
  /// `expert` [N, K] i32: the choices of this rank's tokens; negative: dropped. Collective over ep.
  ExpertDispatch(const Tensor& expert, std::int64_t experts, const DeviceMesh& mesh);

  /// x [N, D] -> [R, D], sorted by expert: one row for each choice, by any rank of the ep group, of an expert held
  /// here. Collective over ep.
  Tensor to_experts(const Tensor& x) const;
  /// The e-th expert held here has rows [starts()[e], starts()[e + 1]).
  const std::vector<std::int64_t>& starts() const { return starts_; }
  /// [R, D] -> [N K, D]: the result for each choice of this rank's tokens, zeros for a dropped one. Collective over ep.
  Tensor from_experts(const Tensor& rows) const;

 private:
  Tensor exchange(const Tensor& buffer) const;

  const DeviceMesh& mesh_;
  std::int64_t piece_ = 0;            // M
  std::vector<std::int64_t> starts_;  // [E/ep + 1]
  Tensor token_of_slot_;              // [ep M] i32: the token in each slot of what is sent; -1: none
  Tensor slot_of_row_;                // [R] i32: where each row stands in what is received
  Tensor row_of_slot_;                // [ep M] i32: the inverse; -1: none
  Tensor slot_of_choice_;             // [N K] i32: where each choice stands in what is sent; -1: dropped
};

}  // namespace trireme::nn
