#include "parallel/pipeline/check.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "parallel/pipeline/timeline.h"

namespace trireme::pipeline {

namespace {

constexpr int kinds = 6;

std::size_t at(int index) { return static_cast<std::size_t>(index); }
std::size_t at(ActionKind kind) { return static_cast<std::size_t>(kind); }

/// Whether a complete schedule has this action for every micro-batch on this stage.
bool expected(const Schedule& schedule, ActionKind kind, int stage) {
  const bool first = stage == 0, last = stage == schedule.stages - 1;
  switch (kind) {
    case ActionKind::forward:
      return true;
    case ActionKind::backward:
      return schedule.backward;
    case ActionKind::send_activation:
      return !last;
    case ActionKind::recv_activation:
      return !first;
    case ActionKind::send_gradient:
      return schedule.backward && !first;
    case ActionKind::recv_gradient:
      return schedule.backward && !last;
  }
  return false;
}

/// Index in a rank's list of each of its actions: [kind][micro-batch], -1 when absent.
using Positions = std::array<std::vector<int>, kinds>;

/// Every action belongs to this rank, and none stands there twice.
Positions find_positions(const Schedule& schedule, int rank) {
  Positions positions;
  for (auto& row : positions) row.assign(at(schedule.microbatches), -1);
  const auto& list = schedule.ranks[at(rank)];
  for (int i = 0; i < static_cast<int>(list.size()); ++i) {
    const Action& action = list[at(i)];
    const auto refuse = [&](const std::string& why) {
      fail(ExitCode::internal, "pipeline check", "{}: rank {}, action {} ({}): {}", schedule.name, rank, i,
           to_string(action), why);
    };
    if (action.stage != rank) refuse(fmt::format("expected an action of stage {}, which lives here", rank));
    if (action.microbatch < 0 || action.microbatch >= schedule.microbatches) {
      refuse(fmt::format("expected a micro-batch from 0 to {}", schedule.microbatches - 1));
    }
    if (!expected(schedule, action.kind, rank)) {
      refuse(fmt::format("stage {} of {} has none of these{}", rank, schedule.stages,
                         schedule.backward ? "" : " in a forward-only run"));
    }
    int& position = positions[at(action.kind)][at(action.microbatch)];
    if (position >= 0) refuse(fmt::format("expected once, but action {} is the same", position));
    position = i;
  }
  return positions;
}

/// Points 1 and 2: `before` stands before `after` for every micro-batch, where the stage has both.
void check_order(const Schedule& schedule, int rank, const Positions& positions, ActionKind before, ActionKind after) {
  if (!expected(schedule, before, rank) || !expected(schedule, after, rank)) return;
  for (int m = 0; m < schedule.microbatches; ++m) {
    const int first = positions[at(before)][at(m)], second = positions[at(after)][at(m)];
    if (first >= 0 && second >= 0 && first < second) continue;
    if (first < 0 && second < 0) {
      fail(ExitCode::internal, "pipeline check",
           "{}: rank {}, action {} (end of its list): missing {} and {} of micro-batch {}", schedule.name, rank,
           schedule.ranks[at(rank)].size(), name(before), name(after), m);
    }
    const int here = second >= 0 ? second : first;
    const std::string problem =
        first < 0    ? fmt::format("missing {} before it", name(before))
        : second < 0 ? fmt::format("missing {} after it", name(after))
                     : fmt::format("expected {} before it, which stands at action {}", name(before), first);
    fail(ExitCode::internal, "pipeline check", "{}: rank {}, action {} ({}): {}", schedule.name, rank, here,
         to_string(schedule.ranks[at(rank)][at(here)]), problem);
  }
}

void check_rank(const Schedule& schedule, int rank) {
  const Positions positions = find_positions(schedule, rank);
  const auto ordered = [&](ActionKind before, ActionKind after) {
    check_order(schedule, rank, positions, before, after);
  };
  for (int m = 0; m < schedule.microbatches;
       ++m) {  // forward alone: the one kind that every stage of every schedule has
    if (positions[at(ActionKind::forward)][at(m)] >= 0) continue;
    fail(ExitCode::internal, "pipeline check",
         "{}: rank {}, action {} (end of its list): missing forward of micro-batch {}", schedule.name, rank,
         schedule.ranks[at(rank)].size(), m);
  }
  ordered(ActionKind::forward, ActionKind::backward);
  ordered(ActionKind::recv_activation, ActionKind::forward);
  ordered(ActionKind::forward, ActionKind::send_activation);
  ordered(ActionKind::recv_gradient, ActionKind::backward);
  ordered(ActionKind::backward, ActionKind::send_gradient);
}

std::vector<int> positions_of(const Schedule& schedule, int rank, ActionKind kind) {
  std::vector<int> found;
  const auto& list = schedule.ranks[at(rank)];
  for (int i = 0; i < static_cast<int>(list.size()); ++i) {
    if (list[at(i)].kind == kind) found.push_back(i);
  }
  return found;
}

/// Point 3. Messages of one kind between two ranks arrive in the order sent, so both ends must name one order. Counts
/// are equal: every rank has each of its messages once.
void check_channel(const Schedule& schedule, int from, ActionKind send, int to, ActionKind recv) {
  const std::vector<int> sends = positions_of(schedule, from, send), recvs = positions_of(schedule, to, recv);
  for (std::size_t k = 0; k < recvs.size(); ++k) {
    const Action& sent = schedule.ranks[at(from)][at(sends[k])];
    const Action& received = schedule.ranks[at(to)][at(recvs[k])];
    if (sent.microbatch == received.microbatch) continue;
    fail(ExitCode::internal, "pipeline check",
         "{}: rank {}, action {} ({}): the message that arrives here is action {} of rank {} ({}); expected the same "
         "micro-batch",
         schedule.name, to, recvs[k], to_string(received), sends[k], from, to_string(sent));
  }
}

/// The action at the other end of a message.
Action counterpart(const Action& action) {
  switch (action.kind) {
    case ActionKind::send_activation:
      return {ActionKind::recv_activation, action.stage + 1, action.microbatch};
    case ActionKind::recv_activation:
      return {ActionKind::send_activation, action.stage - 1, action.microbatch};
    case ActionKind::send_gradient:
      return {ActionKind::recv_gradient, action.stage - 1, action.microbatch};
    case ActionKind::recv_gradient:
      return {ActionKind::send_gradient, action.stage + 1, action.microbatch};
    default:
      fail(ExitCode::internal, "pipeline check", "{} is not a message", to_string(action));
  }
}

/// Point 4. Runs all lists at once. A rank posts its next run of messages, stays until the other end of each is
/// posted too, then computes; when no rank can go on and one has not ended, the schedule deadlocks.
class Rendezvous {
 public:
  explicit Rendezvous(const Schedule& schedule) : schedule_(schedule), posted_(schedule.ranks.size(), 0) {
    for (int rank = 0; rank < schedule.stages; ++rank) positions_.push_back(find_positions(schedule, rank));
  }

  void run() {
    for (int rank = 0; rank < schedule_.stages; ++rank) post(rank);
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < schedule_.stages; ++rank) {
        while (!ended(rank) && waits_for(rank) < 0) {
          ++posted_[at(rank)];  // the computation after the run of messages
          post(rank);
          moved = true;
        }
      }
    }
    for (int rank = 0; rank < schedule_.stages; ++rank) {
      if (const int action = waits_for(rank); action >= 0) refuse(rank, action);
    }
  }

 private:
  const std::vector<Action>& list(int rank) const { return schedule_.ranks[at(rank)]; }
  bool ended(int rank) const { return posted_[at(rank)] == static_cast<int>(list(rank).size()); }
  bool is_posted(const Action& action) const {
    return positions_[at(action.stage)][at(action.kind)][at(action.microbatch)] < posted_[at(action.stage)];
  }

  /// Posts the run of messages that starts where the rank stands.
  void post(int rank) {
    int& posted = posted_[at(rank)];
    while (!ended(rank) && is_message(list(rank)[at(posted)].kind)) ++posted;
  }

  /// Index of a posted message of the latest run whose other end is not posted; -1 when there is none.
  int waits_for(int rank) const {
    for (int i = posted_[at(rank)] - 1; i >= 0 && is_message(list(rank)[at(i)].kind); --i) {
      if (!is_posted(counterpart(list(rank)[at(i)]))) return i;
    }
    return -1;
  }

  [[noreturn]] void refuse(int rank, int index) const {
    const Action& waiting = list(rank)[at(index)];
    const Action other = counterpart(waiting);
    fail(ExitCode::internal, "pipeline check",
         "{}: deadlock: rank {}, action {} ({}) waits for action {} of rank {} ({}), but that rank stays before its "
         "action {}",
         schedule_.name, rank, index, to_string(waiting),
         positions_[at(other.stage)][at(other.kind)][at(other.microbatch)], other.stage, to_string(other),
         posted_[at(other.stage)]);
  }

  const Schedule& schedule_;
  std::vector<int> posted_;  // per rank: its actions before this index are posted or done
  std::vector<Positions> positions_;
};

int peak_live(const Schedule& schedule, const std::vector<Action>& list) {
  int live = 0, peak = 0;
  for (const Action& action : list) {
    if (action.kind == ActionKind::forward) peak = std::max(peak, ++live);
    const ActionKind last_use = schedule.backward ? ActionKind::backward : ActionKind::forward;
    if (action.kind == last_use) --live;
  }
  return peak;
}

}  // namespace

Proof check(const Schedule& schedule) {
  require(schedule.stages >= 1 && schedule.microbatches >= 1 && schedule.ranks.size() == at(schedule.stages),
          "pipeline check",
          "{}: {} stages, {} micro-batches and {} lists; expected at least 1 of each and a list for every stage",
          schedule.name, schedule.stages, schedule.microbatches, schedule.ranks.size());
  for (int rank = 0; rank < schedule.stages; ++rank) check_rank(schedule, rank);
  for (int rank = 0; rank + 1 < schedule.stages; ++rank) {
    check_channel(schedule, rank, ActionKind::send_activation, rank + 1, ActionKind::recv_activation);
    check_channel(schedule, rank + 1, ActionKind::send_gradient, rank, ActionKind::recv_gradient);
  }
  Rendezvous(schedule).run();

  Proof proof;
  int total = 0;
  for (const auto& row : simulate(schedule)) total = std::max(total, row.back().end);
  const int ideal = schedule.microbatches * (forward_cost + (schedule.backward ? backward_cost : 0));
  proof.bubble_of_ideal = static_cast<double>(total - ideal) / ideal;
  proof.bubble_of_total = static_cast<double>(total - ideal) / total;
  for (const auto& list : schedule.ranks) {
    proof.peak_live.push_back(peak_live(schedule, list));
    proof.messages += std::count_if(list.begin(), list.end(), [](const Action& action) {
      return action.kind == ActionKind::send_activation || action.kind == ActionKind::send_gradient;
    });
  }
  return proof;
}

}  // namespace trireme::pipeline
