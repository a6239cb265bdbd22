// The ladders by name, each with the sizes for which its levels were timed (GPT-2 124M with 16 sequences of 1024
// tokens, or a large product), and with ragged ones for tests.
// Read next: docs/ladder.md.
#pragma once

#include <array>
#include <memory>
#include <numeric>

#include "examples/cuda_lab/adamw/trial.h"
#include "examples/cuda_lab/attention/trial.h"
#include "examples/cuda_lab/embedding/trial.h"
#include "examples/cuda_lab/gemm/trial.h"
#include "examples/cuda_lab/gradient_norm/trial.h"
#include "examples/cuda_lab/softmax/trial.h"
#include "examples/cuda_lab/transpose/trial.h"

namespace trireme::cuda::lab {

using Sizes = std::vector<std::int64_t>;  // what they mean: a trial's constructor

/// What a ladder says about a level, whatever its problem.
struct LevelText {
  const char* name;
  const char* idea;
  double h200;  ///< milliseconds
};

struct Ladder {
  const char* name;
  std::vector<LevelText> levels;
  Sizes timed;
  std::vector<Sizes> ragged;
  std::unique_ptr<Trial> (*make)(const Sizes&);
  /// What the last level does with `timed`: FLOPs of products, whose operands begin at multiples of 16 bytes; or 0, and
  /// the bytes that it moves.
  double flops, bytes;
};

template <class Problem>
std::vector<LevelText> texts(std::span<const Level<Problem>> levels) {
  std::vector<LevelText> all;
  for (const Level<Problem>& level : levels) all.push_back({level.name, level.idea, level.h200});
  return all;
}

template <class Attempt>
std::unique_ptr<Trial> make_trial(const Sizes& sizes) {
  return std::make_unique<Attempt>(sizes);
}

/// Array: examples/cuda_lab/trial.h.
template <template <class> class Array>
std::array<Ladder, 7> ladders() {
  constexpr std::int64_t tokens = 16 * 1024, n = 4096, heads = 16;
  const Sizes model = gpt2_tensors();
  const auto parameters = static_cast<double>(std::accumulate(model.begin(), model.end(), std::int64_t{0}));
  return {{{"product",
            texts(gemm::levels()),
            {n, n, n},
            {{8, 8, 8}, {40, 136, 24}, {136, 16, 72}},
            &make_trial<gemm::Attempt<Array>>,
            2.0 * n * n * n,
            0},
           {"attention",
            texts(attention::levels()),
            {heads, n, 0},
            {{1, 1, 1}, {1, 70, 0}, {2, 33, 1}},
            &make_trial<attention::Attempt<Array>>,
            4.0 * heads * n * n * attention::kHeadDim,
            0},
           {"gradient norm",
            texts(gradient_norm::levels()),
            model,
            {{1}, {7, 4096, 3}, {4097, 8200}},
            &make_trial<gradient_norm::Attempt<Array>>,
            0,
            2 * parameters},
           {"transpose",
            texts(transpose::levels()),
            {tokens, 3072},
            {{1, 1}, {40, 33}, {70, 5}},
            &make_trial<transpose::Attempt<Array>>,
            0,
            4.0 * tokens * 3072},
           {"softmax",
            texts(softmax::levels()),
            {192 * 1024, 1024},
            {{1, 1}, {9, 70}, {3, 517}},
            &make_trial<softmax::Attempt<Array>>,
            0,
            4.0 * 192 * 1024 * 1024},
           {"AdamW",
            texts(adamw::levels()),
            model,
            {{1}, {3, 4100, 258}},
            &make_trial<adamw::Attempt<Array>>,
            0,
            28 * parameters},
           {"embedding",
            texts(embedding::levels()),
            {tokens, 50257, 768},
            {{1, 3, 5}, {70, 40, 33}, {300, 9, 20}},
            &make_trial<embedding::Attempt<Array>>,
            0,
            10.0 * tokens * 768}}};
}

}  // namespace trireme::cuda::lab
