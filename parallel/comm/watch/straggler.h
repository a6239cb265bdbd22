// Finds ranks that slow the others down, from the seconds that each rank itself worked in each phase of a step
// (page.h), without the time it waited for others or for a processor. Compares only ranks that do the same work: those
// of one pipeline stage.
//
// On a shared machine any rank is slow now and then. So a rank is named only if it took more than 1.5 times the median
// of its peers, in a phase that matters, in four consecutive windows of four steps. Of a window's four steps the second
// fastest counts, so that one or two slow steps have no effect. A rank that is slow from step S on is named after step
// S + 17 at the latest. Read next: parallel/comm/watch/page.h, parallel/comm/watch/straggler.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "parallel/comm/watch/page.h"

namespace trireme::watch {

struct Straggler {
  int rank = 0;
  Phase phase = Phase::forward;
  double seconds = 0, median = 0;  ///< per step: this rank's, and that of its peers
  std::int64_t first_step = 0, last_step = 0;
  int peers = 0;

  double ratio() const { return seconds / median; }
};

class StragglerDetector {
 public:
  static constexpr int window = 4, windows = 4;  ///< steps of a window; windows in a row
  static constexpr double factor = 1.5;          ///< of the median of its peers
  static constexpr double least_share = 0.1;     ///< the excess is at least this part of the peers' whole step
  static constexpr double least_seconds = 5e-4;  ///< and at least this, per step

  /// `seconds` of one step, by rank; steps must come in order. `work`, by rank: ranks with equal numbers are compared,
  /// those with negative numbers are not. Returns ranks and phases not named before.
  std::vector<Straggler> add(std::int64_t step, const std::vector<PhaseSeconds>& seconds, const std::vector<int>& work);

 private:
  using Key = std::pair<int, Phase>;

  std::vector<std::int64_t> steps_;                 // of the window
  std::vector<std::vector<PhaseSeconds>> seconds_;  // of each
  std::map<Key, int> slow_;                         // windows in a row
  std::map<Key, std::int64_t> since_;               // their first step
  std::map<Key, bool> named_;
};

/// "rank 3 (dp=1,tp=1) takes 2.1x the median of its 3 peers in backward (84 ms against 40 ms a step, ...)".
std::string to_string(const Straggler& straggler, const std::string& place);

/// Reads the ranks' step times from the pages as they appear. Used by one rank of each node.
class StragglerWatch {
 public:
  explicit StragglerWatch(std::shared_ptr<const RankPages> pages) : pages_(std::move(pages)) {}
  /// The messages that are new; called once a step.
  std::vector<std::string> look();

 private:
  std::shared_ptr<const RankPages> pages_;
  StragglerDetector detector_;
  std::int64_t next_ = -1;  // the next step to read; -1: the first available
};

}  // namespace trireme::watch
