#include "parallel/comm/watch/faulty_ranks.h"

#include <algorithm>
#include <set>

namespace trireme::watch {
namespace {

/// Its own thread is blocked but waits for no other rank: it waits for a communication thread, or for a processor.
bool waits_for_itself(const RankSigns& r) { return r.blocked && !r.ended && r.waits_for.empty() && !r.more; }

bool is_lost(const RankSigns& r, double timeout) {
  if (r.ended || r.failed) return false;
  if (r.gone) return true;
  if (r.since_ran >= timeout) return true;
  if (waits_for_itself(r)) return r.since_sign_of_life >= patience_with_unseen * timeout;
  return !r.blocked && (r.since_sign_of_life >= timeout || r.since_heartbeat >= longest_without_beat * timeout);
}

/// All ranks the waiter waits for, directly or through other waiting ranks.
std::set<int> reached_from(int waiter, const std::vector<RankSigns>& ranks) {
  std::set<int> reached;
  std::vector<int> next = {waiter};
  while (!next.empty()) {
    const auto& rank = ranks[static_cast<std::size_t>(next.back())];
    next.pop_back();
    for (const int other : rank.waits_for) {
      if (!reached.insert(other).second) continue;
      const RankSigns& r = ranks[static_cast<std::size_t>(other)];
      if (r.visible && r.blocked) next.push_back(other);
    }
  }
  return reached;
}

}  // namespace

FaultyRanks find_faulty_ranks(int waiter, const std::vector<RankSigns>& ranks, double timeout) {
  const RankSigns& self = ranks[static_cast<std::size_t>(waiter)];
  if (waits_for_itself(self)) return is_lost(self, timeout) ? FaultyRanks{WaitFault::stopped, {waiter}} : FaultyRanks{};
  std::set<int> reached = reached_from(waiter, ranks);
  std::vector<int> lost, unseen;
  bool somebody_works = false, gone = false, more = self.more;
  for (const int rank : reached) {
    const RankSigns& r = ranks[static_cast<std::size_t>(rank)];
    if (!r.visible) {
      unseen.push_back(rank);
    } else if (is_lost(r, timeout)) {
      lost.push_back(rank);
      gone = gone || r.gone;
    } else if (r.failed || (!r.blocked && !r.ended) || waits_for_itself(r)) {
      somebody_works = true;
    } else {
      more = more || r.more;
    }
  }
  if (!lost.empty()) return {gone ? WaitFault::died : WaitFault::stopped, lost};
  if (somebody_works) return {};
  if (!unseen.empty() || more)
    return self.since_sign_of_life >= patience_with_unseen * timeout ? FaultyRanks{WaitFault::unseen, unseen}
                                                                     : FaultyRanks{};
  if (!self.blocked) return {};  // only a helper thread waits: its rank works
  if (self.ended) return {};     // it only waits to leave together with the others
  reached.insert(waiter);
  const bool together = std::all_of(reached.begin(), reached.end(), [&](int rank) {
    return ranks[static_cast<std::size_t>(rank)].operation == self.operation;
  });
  const double patience = together ? patience_with_unseen * timeout : timeout;
  const auto patient = [&](int rank) {
    const RankSigns& r = ranks[static_cast<std::size_t>(rank)];
    return !r.ended && (r.since_sign_of_life < patience || !r.confirmed);
  };
  if (std::any_of(reached.begin(), reached.end(), patient)) return {};
  return {together ? WaitFault::stalled : WaitFault::deadlocked, {reached.begin(), reached.end()}};
}

std::vector<int> died(const std::vector<RankSigns>& ranks) {
  std::vector<int> found;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankSigns& r = ranks[rank];
    if (r.visible && r.gone && !r.ended && !r.failed) found.push_back(static_cast<int>(rank));
  }
  return found;
}

}  // namespace trireme::watch
