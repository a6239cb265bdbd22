// Lab 9: your answer. Fill in the twelve gaps, marked GAP, and run
//
//   ./trireme lab 9
//
// README.md beside this file says how to read the evidence; lab.h has its structs, and those of the findings.
#include "examples/labs/09_diagnosis/lab.h"

namespace trireme::labs::diagnosis {
namespace {

// ---- predictions: first, with pencil and paper ----------------------------------------------------------------------

/// Seconds of a step: each of `ranks` ranks computes `compute` seconds, one of them `factor` times as long; then comes
/// an all-reduce of `all_reduce` seconds.
double step_seconds(int ranks, double compute, double factor, double all_reduce) {
  return 0;  // GAP 1
}

/// Seconds that all ranks together wait in such a step because of the slow one. The links are infinitely fast.
double idle_seconds(int ranks, double compute, double factor) {
  return 0;  // GAP 2
}

/// Comparisons at most, until a bisection has found the first wrong step. It is known that step 0 is right, and step
/// `steps` wrong; a comparison tells of one step whether it is right.
int comparisons(int steps) {
  return 0;  // GAP 3
}

/// Seconds lost by a bit flip in step `flip`, where a step takes `step` seconds. Copies are compared after every
/// `check_every`-th step, and before each save; saves are after every `save_every`-th step. When the copies differ, the
/// job restarts from the newest save, which takes `restart` seconds, and makes the steps after it again.
double seconds_lost(int flip, int check_every, int save_every, double step, double restart) {
  return 0;  // GAP 4
}

// ---- part 1: a rank or a link that is slow --------------------------------------------------------------------------

/// What a rank usually computes in a step, whatever happened in one or two steps.
double typical_seconds(const Times& times, int rank) {
  return 0;  // GAP 5: median() is in lab.h
}

/// What the link between a and b takes for a round trip, whatever kept the ranks at its ends.
double round_trip(const Times& times, int a, int b) {
  return 0;  // GAP 6
}

Lag find_lag(const Times& times) {
  // GAP 7: is there a rank that is slow beside its peers? return {Lag::Cause::rank, rank};
  // GAP 8: otherwise, a link that is slow beside others? return {Lag::Cause::link, a, b};
  return {};
}

// ---- part 2: ranks that wait ----------------------------------------------------------------------------------------

/// The operation in which a rank waits; null: it does not wait.
const Operation* under_way(const FlightRecord& record, int rank) {
  const auto& operations = record.page(rank).operations;
  return operations.empty() || operations.back().ended ? nullptr : &operations.back();
}

/// The number of the last operation of a group that a rank has begun; 0: none that its page still shows.
int last_begun(const FlightRecord& record, int rank, const std::string& group) {
  int sequence = 0;
  for (const Operation& operation : record.page(rank).operations)
    if (operation.group == group) sequence = operation.sequence;
  return sequence;
}

/// The ranks that have to act before this one can go on: members of its group that have not begun the operation in
/// which it waits, or the sender of its message. Empty if it does not wait.
std::vector<int> waits_for(const FlightRecord& record, int rank) {
  return {};  // GAP 9
}

/// One rank does not do as the others. They wait for it, and others for them.
Hang find_hang(const FlightRecord& record) {
  // GAP 10: do all members of a group that wait in it call the same? Their numbers are equal: nobody leaves an
  //         operation that is under way.
  //         Otherwise, where do you get to from a rank that waits, if you go on to one that it waits for?
  return {};
}

// ---- part 3: a rank without a sign of life --------------------------------------------------------------------------

/// The rank that is lost: it should work, and has had no heartbeat for `timeout` seconds.
Loss find_lost(const FlightRecord& record, double timeout) {
  return {};  // GAP 11
}

// ---- part 4: a bit flip ---------------------------------------------------------------------------------------------

/// The first copy that was wrong, and the rank that holds it: or all ranks that may, if nothing tells which.
Flip find_flip(const HashRecord& record) {
  return {};  // GAP 12
}

const Registered registered(answer("learner", {find_lag, waits_for, find_hang, find_lost, find_flip, step_seconds,
                                               idle_seconds, comparisons, seconds_lost}));

}  // namespace
}  // namespace trireme::labs::diagnosis
