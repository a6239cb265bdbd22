// Lab 6, a mixture of experts: what learner.cpp is to contain, and what its functions are given.
// Read next: README.md beside this file, then learner.cpp.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "autograd/ops.h"
#include "examples/labs/harness/grading.h"

// T tokens, of which this rank has N; E experts, of which each of the n ranks holds E/n; D features; K choices a token.
// Ranks have the tokens in order: rank 0 the first ones, the last rank the last ones. N may differ between ranks, and
// may be 0.
namespace trireme::labs::experts {

/// How tokens are given to experts.
struct Routing {
  int k = 2;                   ///< choices of a token
  double capacity_factor = 1;  ///< see capacity()
};

/// How many choices an expert takes, of those that `tokens` tokens make.
inline std::int64_t capacity(const Routing& routing, std::int64_t tokens, std::int64_t experts) {
  return static_cast<std::int64_t>(
      std::ceil(routing.capacity_factor * static_cast<double>(routing.k * tokens) / static_cast<double>(experts)));
}

/// The choices of this rank's tokens.
struct Choices {
  Tensor expert;  ///< [N, K] i32: the most probable first; -1: dropped
  Tensor gate;    ///< [N, K] f32: how much the expert's result counts. Of a dropped choice: any number
};

/// The weights of one expert, a small MLP.
struct Weights {
  Tensor in;   ///< [F, D]
  Tensor out;  ///< [D, F]
};
/// x [R, D] -> [R, D]: each row through the expert.
Tensor expert(const Weights& weights, const Tensor& x);

/// The experts that one rank holds. The others are in the memory of other ranks.
class Experts {
 public:
  Experts(int rank, int ranks, std::vector<Weights> here, double seconds_per_row);

  std::int64_t total() const { return ranks_ * here(); }                            ///< E
  std::int64_t here() const { return static_cast<std::int64_t>(weights_.size()); }  ///< E/n
  std::int64_t first() const { return rank_ * here(); }  ///< this rank holds experts first() to first() + here() - 1
  int rank_of(std::int64_t e) const { return static_cast<int>(e / here()); }  ///< the rank that holds expert e

  /// Expert e of 0 to E - 1, which must be held here: rows [R, D] -> [R, D]. Takes seconds_per_row for each.
  Tensor forward(Rank& rank, std::int64_t e, const Tensor& rows);
  /// d_results [R, D] -> d_rows [R, D], for the rows of the last forward of e, in the same order. Also adds to the
  /// gradients of the expert's weights. Takes twice as long.
  Tensor backward(Rank& rank, std::int64_t e, const Tensor& d_results);

  struct Call {
    std::int64_t expert;
    Tensor rows;
  };
  const std::vector<Call>& calls() const { return calls_; }  ///< of forward
  const std::vector<Weights>& weights() const { return weights_; }

 private:
  std::size_t checked(const Rank& rank, std::int64_t e, const Tensor& rows) const;

  int rank_, ranks_;
  std::vector<Weights> weights_;
  double seconds_per_row_;
  std::vector<Call> calls_;
  std::vector<std::pair<Tensor, Tensor>> tape_;  // by expert held here: the last rows and results, for backward
};

/// The choices that go to rank `to`: numbers t K + j, for choice j of token t. Those for the first expert of `to` come
/// first, and of one expert's those of earlier tokens. Dropped ones are in no list. [S] i32
Tensor choices_for(const Tensor& expert, const Experts& experts, int to);

/// What forward returns.
struct Output {
  Tensor y;        ///< [N, D]
  Tensor results;  ///< [N K, D]: row t K + j is the result for choice j of token t; zeros if it was dropped
};

struct Gradients {
  Tensor x;     ///< [N, D]
  Tensor gate;  ///< [N, K]; 0 for a dropped choice
};

/// A layer whose time is to be predicted, with one choice a token.
struct Cost {
  int ranks;
  int tokens;  ///< N, the same on all ranks; `ranks` divides it
  int width;   ///< D
  double seconds_per_row;
  double latency, bytes_per_second;
};

struct Answers {
  Choices (*route)(Rank& rank, const Tensor& p, const Routing& routing);
  double (*balance_loss)(Rank& rank, const Tensor& p, const Routing& routing);
  Output (*forward)(Rank& rank, Experts& experts, const Choices& choices, const Tensor& x);
  Gradients (*backward)(Rank& rank, Experts& experts, const Choices& choices, const Tensor& results, const Tensor& dy);
  std::int64_t (*bytes_sent)(int ranks, std::int64_t tokens, int k, std::int64_t width);
  std::int64_t (*dropped)(const std::vector<std::int64_t>& chosen, double capacity_factor);
  double (*balanced_seconds)(const Cost& cost);
  double (*hot_seconds)(const Cost& cost);
};

void grade(const Answers& answers, Grading& grading);

inline Answer answer(std::string name, Answers answers, std::string expected = {}) {
  return {"06", std::move(name), [answers](Grading& grading) { grade(answers, grading); }, std::move(expected)};
}

}  // namespace trireme::labs::experts
