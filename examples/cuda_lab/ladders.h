// The ladders by name, except those of the product and of attention: memory-bound kernels, and a few of products. Each
// with the sizes of GPT-2 124M (16 sequences of 1024 tokens), for which its costs are stated, and ragged ones for
// tests.
// Read next: docs/ladder.md.
#pragma once

#include <array>
#include <memory>

#include "examples/cuda_lab/adamw/trial.h"
#include "examples/cuda_lab/attention_backward/trial.h"
#include "examples/cuda_lab/attention_merge/trial.h"
#include "examples/cuda_lab/cross_entropy/trial.h"
#include "examples/cuda_lab/dropout/trial.h"
#include "examples/cuda_lab/embedding/trial.h"
#include "examples/cuda_lab/gather/trial.h"
#include "examples/cuda_lab/gradient_norm/trial.h"
#include "examples/cuda_lab/grouped/trial.h"
#include "examples/cuda_lab/norm_backward/trial.h"
#include "examples/cuda_lab/norm_forward/trial.h"
#include "examples/cuda_lab/rank_order/trial.h"
#include "examples/cuda_lab/rope/trial.h"
#include "examples/cuda_lab/sgd/trial.h"
#include "examples/cuda_lab/softmax/trial.h"
#include "examples/cuda_lab/swiglu/trial.h"
#include "examples/cuda_lab/top_k/trial.h"
#include "examples/cuda_lab/transpose/trial.h"

namespace trireme::cuda::lab {

using Sizes = std::vector<std::int64_t>;  // what they mean: a trial's constructor

struct Ladder {
  const char* name;
  Sizes gpt2;
  std::vector<Sizes> ragged;
  std::unique_ptr<Trial> (*make)(const Sizes&);
  double flops = 0;  ///< not 0: FLOPs of gpt2's products, whose operands begin at multiples of 16 bytes
};

template <class Attempt>
std::unique_ptr<Trial> make_trial(const Sizes& sizes) {
  return std::make_unique<Attempt>(sizes);
}

/// Array: examples/cuda_lab/trial.h.
template <template <class> class Array>
std::array<Ladder, 18> ladders() {
  constexpr std::int64_t kTokens = 16 * 1024;
  const std::vector<Sizes> norms = {{1, 8, 1}, {2, 265, 1}, {7, 33, 0}};
  return {
      {{"gradient norm", gpt2_tensors(), {{1}, {7, 4096, 3}, {4097, 8200}}, &make_trial<gradient_norm::Attempt<Array>>},
       {"norm forward", {kTokens, 768, 1}, norms, &make_trial<norm_forward::Attempt<Array>>},
       {"norm backward", {kTokens, 768, 1}, norms, &make_trial<norm_backward::Attempt<Array>>},
       {"cross-entropy",
        {kTokens, 50304, 50257},
        {{1, 1, 1}, {4, 67, 61}, {2, 1040, 1031}},
        &make_trial<cross_entropy::Attempt<Array>>},
       {"AdamW", gpt2_tensors(), {{1}, {3, 4100, 258}}, &make_trial<adamw::Attempt<Array>>},
       {"embedding",
        {kTokens, 50257, 768},
        {{1, 3, 5}, {70, 40, 33}, {300, 9, 20}},
        &make_trial<embedding::Attempt<Array>>},
       {"transpose", {kTokens, 3072}, {{1, 1}, {40, 33}, {70, 5}}, &make_trial<transpose::Attempt<Array>>},
       {"SwiGLU", {kTokens, 3072}, {{1, 1}, {2, 264}, {5, 37}}, &make_trial<swiglu::Attempt<Array>>},
       {"dropout", {kTokens * 768}, {{1}, {264}, {1037}}, &make_trial<dropout::Attempt<Array>>},
       {"rope", {16, 1024, 12, 64}, {{1, 1, 1, 2}, {2, 3, 2, 32}, {2, 5, 3, 14}}, &make_trial<rope::Attempt<Array>>},
       {"SGD", gpt2_tensors(), {{1}, {3, 4100, 258}}, &make_trial<sgd::Attempt<Array>>},
       {"softmax", {192 * 1024, 1024}, {{1, 1}, {9, 70}, {3, 517}}, &make_trial<softmax::Attempt<Array>>},
       {"sum over ranks", {4, kTokens * 768}, {{1, 9}, {3, 2065}}, &make_trial<rank_order::Attempt<Array>>},
       {"gather", {kTokens, 2 * kTokens, 768}, {{1, 1, 1}, {9, 40, 265}}, &make_trial<gather::Attempt<Array>>},
       {"attention merge",
        {16, 1024, 12, 64},
        {{1, 1, 1, 1}, {1, 3, 2, 300}, {2, 5, 3, 37}},
        &make_trial<attention_merge::Attempt<Array>>},
       {"top k", {kTokens, 64, 2}, {{1, 1, 1}, {9, 64, 2}, {5, 37, 37}}, &make_trial<top_k::Attempt<Array>>},
       {"grouped product",
        {64, 2 * kTokens, 512, 768},
        {{1, 1, 8, 8}, {4, 70, 24, 40}},
        &make_trial<grouped::Attempt<Array>>,
        2.0 * 2 * kTokens * 512 * 768},
       {"attention backward",
        {16 * 12, 1024, 1},
        {{1, 66, 1}, {2, 33, 0}},
        &make_trial<attention_backward::Attempt<Array>>,
        5 * 2 * 64 * (16.0 * 12 * 1024 * 1025 / 2)}}};
}

}  // namespace trireme::cuda::lab
