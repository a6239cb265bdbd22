// Lab 9: a solution. Part 1 is what parallel/comm/watch/straggler.cpp and parallel/comm/hosts/host_signs.cpp decide,
// parts 2 and 3 parallel/comm/watch/faulty_ranks.cpp, part 4 train/step/replica_check.cpp.
#include "examples/labs/09_diagnosis/solution.h"

#include <limits>
#include <map>

namespace trireme::labs::diagnosis::solution {

// ---- predictions ----------------------------------------------------------------------------------------------------

// All wait for the slowest rank, however many they are.
double step_seconds(int, double compute, double factor, double all_reduce) { return factor * compute + all_reduce; }

double idle_seconds(int ranks, double compute, double factor) { return (ranks - 1) * (factor - 1) * compute; }

// Each comparison halves the steps that are left.
int comparisons(int steps) {
  int count = 0;
  for (int known = 1; known < steps; known *= 2) ++count;
  return count;
}

double seconds_lost(int flip, int check_every, int save_every, double step, double restart) {
  const auto next = [&](int every) { return (flip + every - 1) / every * every; };
  const int found = std::min(next(check_every), next(save_every));  // a save compares copies, too
  const int saved = (flip - 1) / save_every * save_every;
  return (found - saved) * step + restart;
}

// ---- part 1: a rank or a link that is slow --------------------------------------------------------------------------

// The median: one slow step is an accident.
double typical_seconds(const Times& times, int rank) {
  std::vector<double> seconds;
  for (const StepTimes& step : times.steps)
    if (step.rank == rank) seconds.push_back(step.computing);
  return median(seconds);
}

// The shortest: the others waited for something else than the link.
double shortest_round_trip(const Times& times, int a, int b) {
  double shortest = std::numeric_limits<double>::infinity();
  for (const RoundTrip& trip : times.round_trips)
    if (trip.from == std::min(a, b) && trip.to == std::max(a, b)) shortest = std::min(shortest, trip.seconds);
  return shortest;
}

Lag find_lag(const Times& times) {
  const int ranks = static_cast<int>(times.work.size());
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<double> peers;
    for (int other = 0; other < ranks; ++other)
      if (other != rank && times.work[at(other)] == times.work[at(rank)])
        peers.push_back(typical_seconds(times, other));
    if (typical_seconds(times, rank) > 1.5 * median(peers)) return {Lag::Cause::rank, rank};
  }
  for (int a = 0; a < ranks; ++a) {
    for (int b = a + 1; b < ranks; ++b) {
      std::vector<double> others;
      for (int other = 0; other < ranks; ++other) {
        if (other == a || other == b) continue;
        others.push_back(shortest_round_trip(times, a, other));
        others.push_back(shortest_round_trip(times, b, other));
      }
      if (shortest_round_trip(times, a, b) > 3 * median(others)) return {Lag::Cause::link, a, b};
    }
  }
  return {};
}

// ---- part 2: ranks that wait ----------------------------------------------------------------------------------------

const Operation* under_way(const FlightRecord& record, int rank) {
  const auto& operations = record.page(rank).operations;
  return operations.empty() || operations.back().ended ? nullptr : &operations.back();
}

int last_begun(const FlightRecord& record, int rank, const std::string& group) {
  int sequence = 0;
  for (const Operation& operation : record.page(rank).operations)
    if (operation.group == group) sequence = operation.sequence;
  return sequence;
}

std::vector<int> waits_for(const FlightRecord& record, int rank) {
  const Operation* operation = under_way(record, rank);
  if (operation == nullptr) return {};
  if (operation->peer >= 0) return {operation->peer};
  std::vector<int> missing;
  for (const int member : record.group(operation->group).ranks)
    if (last_begun(record, member, operation->group) < operation->sequence) missing.push_back(member);
  return missing;
}

Hang find_hang(const FlightRecord& record) {
  // Nobody leaves an operation that is under way, so the members of a group that wait in it have the same number.
  for (const Group& group : record.groups) {
    std::map<std::pair<std::string, std::int64_t>, std::vector<int>> calls;
    for (const int rank : group.ranks)
      if (const Operation* operation = under_way(record, rank); operation != nullptr && operation->group == group.name)
        calls[{operation->name, operation->count}].push_back(rank);
    if (calls.size() < 2) continue;
    const auto fewer = [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); };
    const auto odd = std::ranges::min_element(calls, fewer), most = std::ranges::max_element(calls, fewer);
    const bool same_name = odd->first.first == most->first.first;
    const int rank = odd->second.front();
    return {same_name ? Hang::Kind::other_count : Hang::Kind::other_operation, rank, group.name,
            under_way(record, rank)->sequence};
  }
  // From any rank that waits to one that does not: the operations on the way are ever earlier ones of the program.
  int rank = 0, waiter = -1;
  while (rank < record.size() && under_way(record, rank) == nullptr) ++rank;
  while (under_way(record, rank) != nullptr) {
    waiter = rank;
    rank = waits_for(record, rank).front();
  }
  const Operation* operation = under_way(record, waiter);
  return {Hang::Kind::missing, rank, operation->group, operation->sequence};
}

// ---- part 3: a rank without a sign of life --------------------------------------------------------------------------

// A rank that waits is silent for the sake of others, so only one that does not wait can be lost.
Loss find_lost(const FlightRecord& record, double timeout) {
  for (int rank = 0; rank < record.size(); ++rank) {
    if (under_way(record, rank) != nullptr || record.page(rank).since_heartbeat < timeout) continue;
    Loss loss{.rank = rank, .phase = record.page(rank).phase};
    for (int other = 0; other < record.size(); ++other)
      if (std::ranges::count(waits_for(record, other), rank) > 0) loss.waiting.push_back(other);
    return loss;
  }
  return {};
}

// ---- part 4: a bit flip ---------------------------------------------------------------------------------------------

Flip find_flip(const HashRecord& record) {
  for (const HashCheck& check : record.checks) {
    for (const CopyHashes& copies : check.tensors) {
      std::map<std::uint64_t, std::vector<int>> ranks;  // by hash
      for (std::size_t i = 0; i < copies.hashes.size(); ++i) ranks[copies.hashes[i]].push_back(record.ranks[i]);
      if (ranks.size() == 1) continue;
      Flip flip{.step = check.step, .tensor = copies.tensor};
      for (const auto& [hash, same] : ranks)
        if (2 * same.size() <= copies.hashes.size()) flip.ranks.insert(flip.ranks.end(), same.begin(), same.end());
      return flip;
    }
  }
  return {};
}

namespace {
const Registered registered(answer("solution", answers));
}

}  // namespace trireme::labs::diagnosis::solution
