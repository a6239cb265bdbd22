// The combinations a promise is checked on: every mesh of 1, 2, 4 and 8 ranks with ZeRO stages, schedules, sequence
// parallelism, kinds of context parallelism, recomputation, models, tied embeddings and numbers of micro-batches. A
// combination is a list of arguments for build/bin/parity, so that one that fails can be run by itself.
// Read next: train/parity/parity.h (what is compared), examples/parity_matrix.cpp (who runs them).
#pragma once

#include <map>
#include <string>
#include <vector>

namespace trireme {

struct Combination {
  std::vector<std::string> arguments;          ///< of build/bin/parity
  std::map<std::string, std::string> options;  ///< what was chosen for each option: "zero" -> "2"
};
std::string to_string(const Combination& combination);  ///< "build/bin/parity --mesh dp=2 ..."

/// Every mesh, schedule, ZeRO stage and model, tied or not, with and without sequence parallelism; the other options
/// take turns. Always the same list.
std::vector<Combination> parity_matrix();

/// A short part of `all` in which every pair of choices of two options that `all` has occurs at least once; chosen
/// greedily, always the same.
std::vector<Combination> covering_subset(const std::vector<Combination>& all);

/// The same combination in bf16. Its experts are all chosen for every token, without a limit: a choice is
/// discontinuous, and in bf16 logits as near as 1 in 256 may change places.
Combination in_bf16(const Combination& combination);

}  // namespace trireme
