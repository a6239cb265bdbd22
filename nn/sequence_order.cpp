#include "nn/sequence_order.h"

#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/support.h"
#include "nn/positions.h"

namespace trireme::nn {
namespace {

/// y's run at `to` = x's run at `from`, for all runs;  dx: the same with the two exchanged
struct MoveRuns : Op {
  static constexpr const char* name = "sequence_order";
  int cp = 1;
  bool to_sequence = true;

  Tensor moved(const Tensor& x, bool gathered_to_sequence) const {
    const Tensor y = empty_like(x);
    const std::int64_t length = x.size(1), piece = length / cp;
    for (int rank = 0; rank < cp; ++rank) {
      for (const PositionRun& run : zigzag(length, cp, rank)) {
        const std::int64_t gathered = rank * piece + run.local;
        Tensor to = view::slice(y, 1, gathered_to_sequence ? run.global : gathered, run.length);
        copy(view::slice(x, 1, gathered_to_sequence ? gathered : run.global, run.length), to);
      }
    }
    return y;
  }
  Tensor forward(const Tensor& x) const { return moved(x, to_sequence); }
  Gradients backward(const Tensor& dy) const { return {moved(dy, !to_sequence)}; }
};

Tensor move_runs(const Tensor& x, int cp, bool to_sequence) {
  if (cp == 1) return x;
  MoveRuns op;
  op.cp = cp;
  op.to_sequence = to_sequence;
  return apply(op, x);
}

}  // namespace

Tensor local_tokens(const Tensor& x, const DeviceMesh& mesh) {
  if (mesh.size(Axis::cp) == 1) return x;
  std::vector<Tensor> runs;
  for (const PositionRun& run : attention_positions(mesh, x.size(1)))
    runs.push_back(view::slice(x, 1, run.global, run.length));
  return contiguous(concat(runs, 1));
}

Tensor to_sequence_order(const Tensor& x, int cp) { return move_runs(x, cp, true); }
Tensor to_rank_order(const Tensor& x, int cp) { return move_runs(x, cp, false); }

}  // namespace trireme::nn
