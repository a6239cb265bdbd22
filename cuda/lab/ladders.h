// The ladders of memory-bound kernels by name, each with the sizes of GPT-2 124M (16 sequences of 1024 tokens), for
// which its costs are stated, and ragged ones for tests.
// Read next: docs/ladder.md.
#pragma once

#include <array>
#include <memory>

#include "cuda/lab/adamw/trial.h"
#include "cuda/lab/cross_entropy/trial.h"
#include "cuda/lab/embedding/trial.h"
#include "cuda/lab/gradient_norm/trial.h"
#include "cuda/lab/norm_backward/trial.h"
#include "cuda/lab/norm_forward/trial.h"
#include "cuda/lab/transpose/trial.h"

namespace trireme::cuda::lab {

using Sizes = std::vector<std::int64_t>;  // what they mean: a trial's constructor

struct Ladder {
  const char* name;
  Sizes gpt2;
  std::vector<Sizes> ragged;
  std::unique_ptr<Trial> (*make)(const Sizes&);
};

template <class Attempt>
std::unique_ptr<Trial> make_trial(const Sizes& sizes) {
  return std::make_unique<Attempt>(sizes);
}

/// Array: cuda/lab/trial.h.
template <template <class> class Array>
std::array<Ladder, 7> ladders() {
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
       {"transpose", {kTokens, 3072}, {{1, 1}, {40, 33}, {70, 5}}, &make_trial<transpose::Attempt<Array>>}}};
}

}  // namespace trireme::cuda::lab
