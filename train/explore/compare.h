// Two runs compared: bit by bit, or to rounding.
//
// How much rounding is allowed to do is not one number. A difference within `accepted` is taken without a word. A
// larger one must be reached by rounding itself: the same run, again and again from weights that differ by about the
// unit roundoff (train/faults/disturb.h), shows how far a quantity moves where terms cancel, where a router chooses
// between experts that are nearly equal, or where a sampled token is a near tie. Read next:
// train/explore/check_cases.cpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "train/explore/lab.h"

namespace trireme::explore {

/// What differs between two runs, or nothing: records and samples of the steps that both have, from `first_step` on,
/// and the checkpoints at their end.
std::string differing_bits(const Outcome& a, const Outcome& b, std::int64_t first_step = 0);

/// One quantity of one step.
struct Gap {
  std::int64_t step;
  std::string key;
  std::string a, b;
  double relative;  ///< infinite for what has no rounding: tokens, skipped steps, text
};
/// All that differ, from `first_step` on, and those that only one of the runs has.
std::vector<Gap> gaps(const Outcome& a, const Outcome& b, std::int64_t first_step = 0);

/// The first gap that is neither within `accepted` nor explained by rounding, or nothing. `disturbed` makes the gaps
/// between run `a` and its disturbance `number`; it is asked only when a gap needs it.
std::string unexplained(const std::vector<Gap>& gaps, double accepted,
                        const std::function<std::vector<Gap>(int number)>& disturbed);

}  // namespace trireme::explore
