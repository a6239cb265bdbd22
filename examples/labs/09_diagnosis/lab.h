// Lab 9, diagnosis: the evidence that the functions of learner.cpp read, and the findings that they return. The structs
// are short forms of what the framework's tools report; each names its model.
// Read next: README.md beside this file, then learner.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "examples/labs/harness/grading.h"

namespace trireme::labs::diagnosis {

/// For an even count, the greater of the two middle values, as in parallel/comm/watch/straggler.cpp.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// ---- part 1: a rank or a link that is slow --------------------------------------------------------------------------

/// One step of one rank, in seconds. (parallel/comm/watch/page.h: StepTimes.)
struct StepTimes {
  int step = 0, rank = 0;
  double whole = 0;      ///< from its begin to the begin of the next
  double computing = 0;  ///< the rank's own work
  double waiting = 0;    ///< for messages of other ranks, in collectives
};

/// Rank `from` asked rank `to`, and had its answer. (parallel/comm/hosts/host_signs.h.)
struct RoundTrip {
  int from = 0, to = 0;
  double seconds = 0;
};

struct Times {
  std::vector<int> work;               ///< by rank: ranks with equal numbers do the same work (one pipeline stage)
  std::vector<StepTimes> steps;        ///< of every rank, in every step
  std::vector<RoundTrip> round_trips;  ///< 8 for every two ranks, from < to
};

/// A rank is slow if it computes more than 1.5 times as long as the median of its peers, in most steps. A link is slow
/// if its shortest round trip takes more than 3 times as long as the others of its two ranks do.
struct Lag {
  enum class Cause : std::uint8_t { nobody, rank, link };
  Cause cause = Cause::nobody;
  int rank = -1, peer = -1;  ///< the slow rank; or the two ranks that the slow link joins, in any order
};

// ---- parts 2 and 3: ranks that wait ---------------------------------------------------------------------------------

/// An operation that a rank has begun. (parallel/comm/watch/page.h: Record.)
struct Operation {
  std::string name = {};   ///< "all_reduce", "reduce_scatter", ..; of messages "send", "recv"
  std::int64_t count = 0;  ///< elements
  std::string group = {};
  int sequence = 0;    ///< among the collectives of its group, from 1; 0 for messages
  int peer = -1;       ///< of a message: the other rank
  bool ended = false;  ///< false: under way
};

/// What a rank shows the others. (parallel/comm/watch/page.h: RankPage.)
struct RankPage {
  std::string phase = {};               ///< that it was in last: "forward", "backward", "communication", "optimizer"
  double since_heartbeat = 0;           ///< seconds; a rank that waits has no heartbeat
  std::vector<Operation> operations{};  ///< its last ones, oldest first: those before are forgotten
};

struct Group {
  std::string name;        ///< "tp[pp=0,data=1]"
  std::vector<int> ranks;  ///< of the world
};

/// All ranks' pages, when the job no longer moves. (OUT/flight_recorder.txt; parallel/comm/watch/report.h.)
struct FlightRecord {
  std::vector<RankPage> ranks;  ///< by world rank
  std::vector<Group> groups;

  const RankPage& page(int rank) const { return ranks[at(rank)]; }
  int size() const { return static_cast<int>(ranks.size()); }
  const Group& group(const std::string& name) const {
    return *std::ranges::find(groups, name, [](const Group& group) { return group.name; });
  }
};

/// Which rank does not do as the others of a group.
struct Hang {
  enum class Kind : std::uint8_t {
    missing,          ///< it has not begun an operation in which others wait
    other_operation,  ///< it has called an operation of another name
    other_count,      ///< the same operation, of another number of elements
  };
  Kind kind = Kind::missing;
  int rank = -1;
  std::string group = {};  ///< an operation in which others wait for it: its group
  int sequence = 0;        ///< and its number
};

/// A rank without a sign of life.
struct Loss {
  int rank = -1;                  ///< -1: no rank is lost; what others wait for is still at work
  std::string phase = {};         ///< in which it was
  std::vector<int> waiting = {};  ///< ranks in an operation that it has not begun, or that wait for its message
};

// ---- part 4: a bit flip ---------------------------------------------------------------------------------------------

/// The hashes of all copies of one tensor, in the order of HashRecord::ranks. (train/step/replica_check.h: CopyHash.)
struct CopyHashes {
  std::string tensor;
  std::vector<std::uint64_t> hashes;
};

/// The copies after one step.
struct HashCheck {
  int step = 0;
  std::vector<CopyHashes> tensors;  ///< in alphabetical order
};

struct HashRecord {
  std::vector<int> ranks;         ///< of the world, that hold copies
  std::vector<HashCheck> checks;  ///< one after every step
};

/// The first copy that was wrong.
struct Flip {
  int step = -1;  ///< -1: all copies are equal in all steps
  std::string tensor = {};
  std::vector<int> ranks = {};  ///< world ranks that may hold the wrong copy
};

struct Answers {
  Lag (*find_lag)(const Times& times);
  std::vector<int> (*waits_for)(const FlightRecord& record, int rank);
  Hang (*find_hang)(const FlightRecord& record);
  Loss (*find_lost)(const FlightRecord& record, double timeout);
  Flip (*find_flip)(const HashRecord& record);
  double (*step_seconds)(int ranks, double compute, double factor, double all_reduce);
  double (*idle_seconds)(int ranks, double compute, double factor);
  int (*comparisons)(int steps);
  double (*seconds_lost)(int flip, int check_every, int save_every, double step, double restart);
};

void grade(const Answers& answers, Grading& grading);

inline Answer answer(std::string name, Answers answers, std::string expected = {}) {
  return {"09", std::move(name), [answers](Grading& grading) { grade(answers, grading); }, std::move(expected)};
}

}  // namespace trireme::labs::diagnosis
