// The combinations that are compared with one rank: every mesh of 1, 2, 4 and 8 ranks with ZeRO stages, schedules,
// sequence parallelism, kinds of context parallelism, recomputation, models, tied embeddings and numbers of
// micro-batches. A combination is a list of arguments for build/bin/parity, so that a failing one can be run by itself.
// Read next: check/parity/parity.h (what is compared), examples/parity_matrix.cpp (who runs them).
#pragma once

#include <map>
#include <string>
#include <vector>

namespace trireme {

struct Combination {
  std::vector<std::string> arguments;          ///< for build/bin/parity
  std::map<std::string, std::string> options;  ///< the choice for each option: "zero" -> "2"
};
std::string to_string(const Combination& combination);  ///< "build/bin/parity --mesh dp=2 ..."

/// Every mesh, schedule, ZeRO stage and model, tied or not, with and without sequence parallelism. The other options
/// rotate through their choices. Always the same list.
std::vector<Combination> parity_matrix();

/// A small subset of `all`. Every pair of choices of two options that occurs in `all` also occurs in the subset. Chosen
/// greedily, always the same.
std::vector<Combination> covering_subset(const std::vector<Combination>& all);

/// The same combination in bf16. Every token then uses all experts, without a capacity limit: the choice of experts is
/// discontinuous, and in bf16 two logits closer than 1 in 256 may swap.
Combination in_bf16(const Combination& combination);

/// The same combination with --device `device`, without what exists on the CPU only: caps of attention's scores.
Combination on_device(const Combination& combination, const std::string& device);

}  // namespace trireme
