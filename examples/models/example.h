// What the programs of this folder share: each trains its model on one rank, then on two ranks that have half of every
// batch, and compares. The two add the same numbers in another order, so they differ by rounding. A training makes
// small differences grow, the faster the larger its learning rate, so the losses of later steps may differ in more
// digits.
// Read next: examples/models/regression.cpp, the shortest of the programs.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "data/sampler.h"
#include "parallel/comm/process_group.h"
#include "parallel/mesh/mesh.h"

namespace trireme {

/// What a training has reached; the same on every rank.
struct Outcome {
  std::vector<double> losses;  ///< of each step: the mean over the whole batch
  double score = 0;            ///< how good the model is, on data that it was not trained on
};

struct Goal {
  const char* score;  ///< what the score is: "accuracy on new points"
  double at_least = -std::numeric_limits<double>::infinity(), at_most = std::numeric_limits<double>::infinity();
  std::size_t equal_steps = 50;  ///< the losses of so many steps must agree to 1e-5, relative
};

using Train = std::function<Outcome(const std::shared_ptr<const DeviceMesh>& mesh)>;

/// The samples of each batch that a rank takes: the first rank of dp the first part, and so on.
inline BatchPlan own_part(const DeviceMesh& mesh, std::int64_t batch) {
  const int ranks = mesh.size(Axis::dp);
  return {.global_batch = batch, .micro_batch = batch / ranks, .dp_rank = mesh.coord(Axis::dp), .dp_size = ranks};
}

inline Outcome train_on(const char* shape, const Train& train) {
  const MeshShape axes = parse_mesh(shape, 0);
  Outcome of_first;
  run_thread_ranks(axes.ranks(), 1, std::chrono::seconds(60), [&](const std::shared_ptr<ProcessGroup>& world) {
    const Outcome outcome = train(std::make_shared<const DeviceMesh>(world, axes));
    if (world->rank() == 0) of_first = outcome;
  });
  return of_first;
}

/// Prints losses and scores, and returns the program's exit code: 0 if both scores reach the goal, and the losses of
/// the first steps agree. `two`: a mesh of two ranks.
inline int train_on_one_and_two_ranks(const Train& train, const Goal& goal, const char* two = "dp=2") {
  const Outcome a = train_on("dp=1", train), b = train_on(two, train);
  const auto difference = [&](std::size_t steps) {  // the largest of the first steps
    double largest = 0;
    for (std::size_t i = 0; i < std::min(steps, a.losses.size()); ++i)
      largest = std::max(largest, std::abs(a.losses[i] - b.losses[i]) / std::abs(a.losses[i]));
    return largest;
  };
  fmt::print("{:>6}  {:>12}  {:>12}\n", "step", "loss", two);
  for (std::size_t row = 0; row < 6; ++row) {
    const std::size_t step = (a.losses.size() - 1) * row / 5;
    fmt::print("{:>6}  {:>12.7f}  {:>12.7f}\n", step, a.losses[step], b.losses[step]);
  }
  fmt::print("largest relative difference: {:.1e} in the first {} steps, {:.1e} in all\n", difference(goal.equal_steps),
             goal.equal_steps, difference(a.losses.size()));
  fmt::print("{}: {:.4f} on one rank, {:.4f} on two\n", goal.score, a.score, b.score);
  const auto reached = [&](double score) { return score >= goal.at_least && score <= goal.at_most; };
  return reached(a.score) && reached(b.score) && difference(goal.equal_steps) <= 1e-5 ? 0 : 1;
}

}  // namespace trireme
