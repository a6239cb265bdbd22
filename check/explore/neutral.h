// Neutral changes: flags that must not change a bit of a run's results. docs/guarantees.md has a row for each.
// Read next: check/explore/kinds.h.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "check/explore/case.h"
#include "check/explore/random_choices.h"

namespace trireme::explore {

/// True if a run with `flags` must give the same bits with `flag` set to `value`, one that draw_neutral_changes()
/// draws.
bool is_neutral(const Arguments& flags, const std::string& flag, const std::string& value);

/// Draws neutral changes for which, together, `accepts` is true. Sometimes few, sometimes many: runs that differ in
/// many flags find more than runs that differ in one. Sometimes none: the same run again.
Arguments draw_neutral_changes(const Arguments& flags, RandomChoices& random,
                               const std::function<bool(const Arguments&)>& accepts);

/// Sequences per step in a run with these flags.
std::int64_t global_batch(const Arguments& flags);

}  // namespace trireme::explore
