// What a page says at its top, in words: the slowest rank, exposed communication, the bubble, the most memory, and what
// the losses did. Each finding follows from numbers that the page also draws. Read next: ops/view/findings.cpp.
#pragma once

#include <string>
#include <vector>

#include "ops/view/profile.h"
#include "ops/view/run_files.h"

namespace trireme::run_view {

struct Finding {
  bool warning = false;
  std::string title, text;
  std::string section;  ///< of the page, which shows it: "timeline", "memory", "curves"
  int rank = -1;        ///< that it is about
};

/// Means over the steps of the profile, in seconds a step.
struct RankMeans {
  double working = 0, waiting = 0, waiting_for_ranks = 0;  ///< the latter: until the last rank had come
  double waited_for = 0;                                   ///< other ranks' waits until this one came
  double critical = 0;                                     ///< on the critical path
};
std::vector<RankMeans> means_of(const Profile& profile);

/// Of the steps; empty without steps.
std::vector<Finding> step_findings(const Profile& profile);
/// Of the logged steps; empty without any.
std::vector<Finding> metrics_findings(const std::vector<MetricsRecord>& metrics);

/// The schedule of the profile, with its mean times of a forward and a backward, as if messages took no time.
struct Planned {
  std::vector<std::vector<Part>> ranks;  ///< by pp
  double seconds = 0, bubble = 0;        ///< bubble: idle share
  double plain_bubble = 0;               ///< of the schedule with a backward twice as long as a forward
};
/// Of the `step`-th step. Empty ranks if its parts do not fit the schedule's name.
Planned plan_of(const Profile& profile, const Step& step);

}  // namespace trireme::run_view
