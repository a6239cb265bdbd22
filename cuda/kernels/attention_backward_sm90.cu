// Attention backward for Hopper; formulas: cuda/kernels/attention.h. As described there, one kernel makes dk and dv and
// another dq, and both compute the probabilities. That costs 14 Tq Tk D FLOPs a head instead of 10, but gives the same
// bits on every run, and blocks need not wait for one another. docs/cuda.md, "Attention on Hopper", compares it with
// one kernel that adds dq in a fixed order.
// Read next: cuda/kernels/attention_backward_keys_sm90.cu.
#include "cuda/kernels/attention_backward_hopper.h"
#include "cuda/kernels/attention_delta.h"

namespace trireme::cuda {

template <class T>
void attention_backward_sm90(const AttentionBackward<T>& p, Stream stream) {
  attention::require_backward(p, "attention_backward_sm90");
  if (p.forward.batch == 0) return;
  attention_delta(p, stream);
  attention_backward_keys_sm90(p, stream);
  attention_backward_queries_sm90(p, stream);
}

template void attention_backward_sm90(const AttentionBackward<bf16>&, Stream);
template void attention_backward_sm90(const AttentionBackward<f16>&, Stream);

}  // namespace trireme::cuda
