// Compares two runs: bit by bit, or up to rounding.
//
// There is no single limit for the effect of rounding. A difference within `accepted` always passes. A larger one must
// be reachable by rounding: the same run is repeated from weights that differ by about the unit roundoff
// (check/faults/disturb.h). This shows how far a quantity moves where terms cancel, where a router chooses between
// experts that are nearly equal, or where two tokens are nearly equally likely. Read next:
// check/explore/check_cases.cpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "check/explore/program_runner.h"

namespace trireme::explore {

/// The first difference between two runs, or nothing. Compares records and samples of the steps that both have, from
/// `first_step` on, and the checkpoints at the end.
std::string differing_bits(const TrainingResult& a, const TrainingResult& b, std::int64_t first_step = 0);

/// A difference in one quantity of one step.
struct Gap {
  std::int64_t step;
  std::string key;
  std::string a, b;
  double relative;  ///< infinite for quantities without rounding: tokens, skipped steps, text
};
/// All differences from `first_step` on, including quantities that only one of the runs has.
std::vector<Gap> gaps(const TrainingResult& a, const TrainingResult& b, std::int64_t first_step = 0);

/// Returns the gaps between run `a` and its disturbance `number`, which is `factor` times as large as rounding.
using Disturbances = std::function<std::vector<Gap>(int number, double factor)>;

/// The first gap that is neither within `accepted` nor explained by rounding, or nothing. A number may differ
/// most_rounding_ratio times as much as a disturbance made it differ. A sampled text differs or it does not, so once
/// only texts are left, the disturbances themselves are that many times larger. They are made only if needed.
std::string unexplained(const std::vector<Gap>& gaps, double accepted, const Disturbances& disturbed);

}  // namespace trireme::explore
