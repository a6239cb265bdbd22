// Neutral changes: flags that must not change a bit of what a run computes. docs/guarantees.md has a row for each.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "train/explore/case.h"
#include "train/explore/dice.h"

namespace trireme::explore {

/// Whether giving `flag` this value in a run with `flags` must leave all bits as they are.
bool is_neutral(const Arguments& flags, const std::string& flag, const std::string& value);

/// Neutral changes that `taken` accepts together: few or many, for two runs that differ in much show more than two that
/// differ in one flag. None at times: the same run again.
Arguments draw_neutral_changes(const Arguments& flags, Dice& dice, const std::function<bool(const Arguments&)>& taken);

/// Sequences in a step of a run with these flags.
std::int64_t global_batch(const Arguments& flags);

}  // namespace trireme::explore
