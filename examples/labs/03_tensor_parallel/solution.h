// What the wrong answers of lab 3 take from its solution: all but the function in which they are wrong.
#pragma once

#include "examples/labs/03_tensor_parallel/lab.h"

namespace trireme::labs::tensor_parallel::solution {

int all_reduces_forward(int blocks);
int all_reduces_backward(int blocks);
std::int64_t mlp_bytes(int tp, std::int64_t tokens, std::int64_t width, std::int64_t hidden);
std::int64_t loss_bytes(int tp, std::int64_t tokens, std::int64_t vocabulary);
Forward<MlpKept> mlp_forward(Rank& rank, const Mlp& part, const Tensor& x);
Backward<Mlp> mlp_backward(Rank& rank, const Mlp& part, const MlpKept& kept, const Tensor& dy);
Forward<AttentionKept> attention_forward(Rank& rank, const Attention& part, const Tensor& x);
Backward<Attention> attention_backward(Rank& rank, const Attention& part, const AttentionKept& kept, const Tensor& dy);
Loss cross_entropy(Rank& rank, const Tensor& logits, const Tensor& targets, std::int64_t vocabulary);

inline constexpr Answers answers = {mlp_forward,          mlp_backward,  attention_forward,
                                    attention_backward,   cross_entropy, all_reduces_forward,
                                    all_reduces_backward, mlp_bytes,     loss_bytes};

}  // namespace trireme::labs::tensor_parallel::solution
