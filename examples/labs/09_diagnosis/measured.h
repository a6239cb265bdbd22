// What the predictions of lab 9 are compared with: jobs on the ranks of the harness, and a bisection.
// Read next: grader.cpp.
#pragma once

#include <utility>

#include "examples/labs/09_diagnosis/lab.h"

namespace trireme::labs::diagnosis {

/// A step in which rank 1 computes `factor` times as long as the others.
inline Timeline step_with_slow_rank(int ranks, double compute, double factor, double all_reduce) {
  const Run run = run_ranks({.ranks = ranks, .collectives = true}, [&](Rank& rank) {
    rank.compute(rank.rank() == 1 ? factor * compute : compute, "a step");
    rank.all_reduce(Tensor::zeros({ranks}));
  });
  return timed(run, equal_links(all_reduce / (2 * (ranks - 1)), 1e15));
}

/// The most comparisons of a bisection, over all steps at which the fault may be.
inline int measured_comparisons(int steps) {
  int most = 0;
  for (int fault = 1; fault <= steps; ++fault) {
    int good = 0, bad = steps, count = 0;
    for (; bad - good > 1; ++count) {
      const int middle = (good + bad) / 2;
      (middle < fault ? good : bad) = middle;
    }
    most = std::max(most, count);
  }
  return most;
}

/// Two replicas add 1 to a weight in every step; after step `flip`, once, one copy is wrong. They compare, save, and
/// start again from the last save.
inline double measured_loss(int flip, int check_every, int save_every, double step_seconds, double restart) {
  const int steps = flip + check_every + save_every;
  const Run run = run_ranks({.ranks = 2, .collectives = true}, [&](Rank& rank) {
    float weight = 0, saved = 0;
    bool flipped = false;
    for (int step = 1; step <= steps; ++step) {
      rank.compute(step_seconds, "a step");
      weight += 1;
      if (step == flip && !std::exchange(flipped, true) && rank.rank() == 1) weight += 0.5F;
      const bool saves = step % save_every == 0;
      if (!saves && step % check_every != 0) continue;
      const Tensor copies = rank.all_gather(Tensor::full({1}, weight));  // [2, 1]
      if (copies.span<const float>()[0] != copies.span<const float>()[1]) {
        rank.compute(restart, "starts again");
        weight = saved;
        step = static_cast<int>(saved);
      } else if (saves) {
        saved = weight;
      }
    }
  });
  return timed(run, equal_links(1e-12, 1e15)).seconds - steps * step_seconds;
}

}  // namespace trireme::labs::diagnosis
