// Neutral changes: flags that must not change a bit of what a run computes. docs/guarantees.md has a row for each.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "train/explore/case.h"
#include "train/explore/dice.h"

namespace trireme::explore {

/// Whether giving `flag` this value in a run with `flags` must leave all bits as they are.
bool is_neutral(const Arguments& flags, const std::string& flag, const std::string& value);

/// A flag and a value that are neutral, or nothing: the same run again.
Arguments draw_neutral_change(const Arguments& flags, Dice& dice);

/// Sequences in a step of a run with these flags.
std::int64_t global_batch(const Arguments& flags);

}  // namespace trireme::explore
