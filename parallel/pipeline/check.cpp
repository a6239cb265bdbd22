#include "parallel/pipeline/check.h"

#include <algorithm>
#include <array>

#include "core/error.h"

namespace trireme::pipeline {

namespace {

/// Index in its rank's list of each action of one stage: [kind][micro-batch], -1 when absent.
using Positions = std::array<std::vector<int>, action_kinds>;

class Checker {
 public:
  explicit Checker(const Schedule& schedule) : schedule_(schedule) {
    require(schedule.rank_count() >= 1 && schedule.microbatches >= 1 && schedule.stages >= schedule.rank_count() &&
                schedule.stages % schedule.rank_count() == 0,
            "pipeline check",
            "{}: {} stages, {} micro-batches and {} lists; expected at least 1 of each, and as many stages for every "
            "list",
            schedule.name, schedule.stages, schedule.microbatches, schedule.ranks.size());
    find_splits();
    Positions none;
    for (auto& row : none) row.assign(at(schedule.microbatches), -1);
    positions_.assign(at(schedule.stages), none);
    for (int rank = 0; rank < schedule.rank_count(); ++rank) find_positions(rank);
  }

  void run() const {
    for (int stage = 0; stage < schedule_.stages; ++stage) check_stage(stage);
    if (schedule_.rank_count() == 1) check_chunks_of_one_rank();
    for (int stage = 0; stage + 1 < schedule_.stages; ++stage) {
      check_channel({ActionKind::send_activation, stage, 0});
      check_channel({ActionKind::send_gradient, stage + 1, 0});
    }
    check_deadlock();
    for (int stage = 0; stage < schedule_.stages; ++stage) {
      check_microbatch_order(stage, gradient_kind(stage));
      check_microbatch_order(stage, ActionKind::backward_weight);
    }
  }

  /// The action after which a stage keeps nothing of a micro-batch.
  ActionKind last_use(int stage) const {
    if (!schedule_.backward) return ActionKind::forward;
    return splits(stage) ? ActionKind::backward_weight : ActionKind::backward;
  }

 private:
  const std::vector<Action>& list(int rank) const { return schedule_.ranks[at(rank)]; }
  int position(ActionKind kind, int stage, int microbatch) const {
    return positions_[at(stage)][static_cast<std::size_t>(kind)][at(microbatch)];
  }
  int position(const Action& action) const { return position(action.kind, action.stage, action.microbatch); }
  bool splits(int stage) const { return splits_[at(stage)]; }
  ActionKind gradient_kind(int stage) const {
    return splits(stage) ? ActionKind::backward_input : ActionKind::backward;
  }

  void find_splits() {
    splits_.assign(at(schedule_.stages), false);
    for (const auto& list : schedule_.ranks) {
      for (const Action& action : list) {
        if (action.kind == ActionKind::backward_input && action.stage >= 0 && action.stage < schedule_.stages)
          splits_[at(action.stage)] = true;
      }
    }
  }

  /// True if a complete schedule has this action for every micro-batch on this stage.
  bool expected(ActionKind kind, int stage) const {
    const bool messages = schedule_.rank_count() > 1;
    const bool before = stage > 0 && messages, after = stage < schedule_.stages - 1 && messages;
    switch (kind) {
      case ActionKind::forward:
        return true;
      case ActionKind::backward:
        return schedule_.backward && !splits(stage);
      case ActionKind::backward_input:
      case ActionKind::backward_weight:
        return schedule_.backward && splits(stage);
      case ActionKind::send_activation:
        return after;
      case ActionKind::recv_activation:
        return before;
      case ActionKind::send_gradient:
        return schedule_.backward && before;
      case ActionKind::recv_gradient:
        return schedule_.backward && after;
    }
    return false;
  }

  std::string stages_of(int rank) const {
    std::string text;
    for (int stage = rank; stage < schedule_.stages; stage += schedule_.rank_count())
      text += fmt::format("{}{}", text.empty() ? "" : ", ", stage);
    return text;
  }

  /// Checks that every action belongs to this rank and occurs once.
  void find_positions(int rank) {
    for (int i = 0; i < static_cast<int>(list(rank).size()); ++i) {
      const Action& action = list(rank)[at(i)];
      const auto refuse = [&](const std::string& why) {
        fail(ExitCode::internal, "pipeline check", "{}: rank {}, action {} ({}): {}", schedule_.name, rank, i,
             to_string(action), why);
      };
      if (action.stage < 0 || action.stage >= schedule_.stages || schedule_.rank_of(action.stage) != rank)
        refuse(fmt::format("expected an action of stage {}, which lives here", stages_of(rank)));
      if (action.microbatch < 0 || action.microbatch >= schedule_.microbatches)
        refuse(fmt::format("expected a micro-batch from 0 to {}", schedule_.microbatches - 1));
      if (!expected(action.kind, action.stage)) {
        refuse(fmt::format("stage {} of {} has none of these{}", action.stage, schedule_.stages,
                           schedule_.backward ? "" : " in a forward-only run"));
      }
      int& found = positions_[at(action.stage)][static_cast<std::size_t>(action.kind)][at(action.microbatch)];
      if (found >= 0) refuse(fmt::format("expected once, but action {} is the same", found));
      found = i;
    }
  }

  /// Points 1 and 2.
  void check_stage(int stage) const {
    const int rank = schedule_.rank_of(stage);
    // check_order() alone would miss this in a forward-only schedule on one rank.
    for (int m = 0; m < schedule_.microbatches; ++m) {
      if (position(ActionKind::forward, stage, m) >= 0) continue;
      fail(ExitCode::internal, "pipeline check",
           "{}: rank {}, action {} (end of its list): missing forward of micro-batch {} on stage {}", schedule_.name,
           rank, list(rank).size(), m, stage);
    }
    const ActionKind gradient = gradient_kind(stage);
    check_order(stage, ActionKind::forward, gradient);
    check_order(stage, ActionKind::backward_input, ActionKind::backward_weight);
    check_order(stage, ActionKind::recv_activation, ActionKind::forward);
    check_order(stage, ActionKind::forward, ActionKind::send_activation);
    check_order(stage, ActionKind::recv_gradient, gradient);
    check_order(stage, gradient, ActionKind::send_gradient);
  }

  /// Checks that `before` comes before `after` for every micro-batch, if the stage has both.
  void check_order(int stage, ActionKind before, ActionKind after) const {
    if (!expected(before, stage) || !expected(after, stage)) return;
    const int rank = schedule_.rank_of(stage);
    for (int m = 0; m < schedule_.microbatches; ++m) {
      const int first = position(before, stage, m), second = position(after, stage, m);
      if (first >= 0 && second >= 0 && first < second) continue;
      if (first < 0 && second < 0) {
        fail(ExitCode::internal, "pipeline check",
             "{}: rank {}, action {} (end of its list): missing {} and {} of micro-batch {} on stage {}",
             schedule_.name, rank, list(rank).size(), name(before), name(after), m, stage);
      }
      const int here = second >= 0 ? second : first;
      const std::string problem =
          first < 0    ? fmt::format("missing {} before it", name(before))
          : second < 0 ? fmt::format("missing {} after it", name(after))
                       : fmt::format("expected {} before it, which stands at action {}", name(before), first);
      fail(ExitCode::internal, "pipeline check", "{}: rank {}, action {} ({}): {}", schedule_.name, rank, here,
           to_string(list(rank)[at(here)]), problem);
    }
  }

  /// Point 2 without messages: a stage runs after the stage that makes its input, or its gradient.
  void check_chunks_of_one_rank() const {
    const auto ordered = [&](const Action& first, const Action& second) {
      if (position(first) < position(second)) return;
      fail(ExitCode::internal, "pipeline check", "{}: rank 0, action {} ({}): expected action {} ({}) before it",
           schedule_.name, position(second), to_string(second), position(first), to_string(first));
    };
    for (int stage = 0; stage + 1 < schedule_.stages; ++stage) {
      for (int m = 0; m < schedule_.microbatches; ++m) {
        ordered({ActionKind::forward, stage, m}, {ActionKind::forward, stage + 1, m});
        if (schedule_.backward) ordered({gradient_kind(stage + 1), stage + 1, m}, {gradient_kind(stage), stage, m});
      }
    }
  }

  std::vector<int> positions_of(ActionKind kind, int stage) const {
    std::vector<int> found = positions_[at(stage)][static_cast<std::size_t>(kind)];
    std::sort(found.begin(), found.end());
    return found;
  }

  /// Point 3. Messages of one kind between two stages arrive in the order sent, so both ends must list the same order.
  /// Both ends have the same number: each message occurs once.
  void check_channel(const Action& any_send) const {
    if (!expected(any_send.kind, any_send.stage)) return;
    const Action any_recv = counterpart(any_send);
    const int from = schedule_.rank_of(any_send.stage), to = schedule_.rank_of(any_recv.stage);
    const std::vector<int> sends = positions_of(any_send.kind, any_send.stage);
    const std::vector<int> recvs = positions_of(any_recv.kind, any_recv.stage);
    for (std::size_t k = 0; k < recvs.size(); ++k) {
      const Action& sent = list(from)[at(sends[k])];
      const Action& received = list(to)[at(recvs[k])];
      if (sent.microbatch == received.microbatch) continue;
      fail(ExitCode::internal, "pipeline check",
           "{}: rank {}, action {} ({}): the message that arrives here is action {} of rank {} ({}); expected the same "
           "micro-batch",
           schedule_.name, to, recvs[k], to_string(received), sends[k], from, to_string(sent));
    }
  }

  /// Point 5.
  void check_microbatch_order(int stage, ActionKind kind) const {
    if (!expected(kind, stage)) return;
    for (int m = 1; m < schedule_.microbatches; ++m) {
      const int before = position(kind, stage, m - 1), here = position(kind, stage, m);
      if (before < here) continue;
      fail(ExitCode::internal, "pipeline check",
           "{}: rank {}, action {} ({}): expected micro-batch {} before it, which stands at action {}: gradients are "
           "summed in the order of micro-batches",
           schedule_.name, schedule_.rank_of(stage), here, to_string({kind, stage, m}), m - 1, before);
    }
  }

  // Point 4. Runs all lists at once. A rank posts its next run of messages, waits until the other end of each is posted
  // too, then computes. If no rank can go on and some rank has not ended, the schedule deadlocks.

  using Posted = std::vector<int>;  ///< per rank: the actions before this index are posted or done

  void check_deadlock() const {
    Posted posted(schedule_.ranks.size(), 0);
    for (int rank = 0; rank < schedule_.rank_count(); ++rank) post(posted, rank);
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < schedule_.rank_count(); ++rank) {
        while (!ended(posted, rank) && waits_for(posted, rank) < 0) {
          ++posted[at(rank)];  // the computation after the run of messages
          post(posted, rank);
          moved = true;
        }
      }
    }
    for (int rank = 0; rank < schedule_.rank_count(); ++rank) {
      if (const int action = waits_for(posted, rank); action >= 0) refuse_deadlock(posted, rank, action);
    }
  }

  bool ended(const Posted& posted, int rank) const { return posted[at(rank)] == static_cast<int>(list(rank).size()); }

  /// Posts the run of messages at the rank's current position.
  void post(Posted& posted, int rank) const {
    while (!ended(posted, rank) && is_message(list(rank)[at(posted[at(rank)])].kind)) ++posted[at(rank)];
  }

  /// Index of a posted message of the latest run whose other end is not posted; -1 when there is none.
  int waits_for(const Posted& posted, int rank) const {
    for (int i = posted[at(rank)] - 1; i >= 0 && is_message(list(rank)[at(i)].kind); --i) {
      const Action other = counterpart(list(rank)[at(i)]);
      if (position(other) >= posted[at(schedule_.rank_of(other.stage))]) return i;
    }
    return -1;
  }

  [[noreturn]] void refuse_deadlock(const Posted& posted, int rank, int index) const {
    const Action& waiting = list(rank)[at(index)];
    const Action other = counterpart(waiting);
    const int peer = schedule_.rank_of(other.stage);
    fail(ExitCode::internal, "pipeline check",
         "{}: deadlock: rank {}, action {} ({}) waits for action {} of rank {} ({}), but that rank stays before its "
         "action {}",
         schedule_.name, rank, index, to_string(waiting), position(other), peer, to_string(other), posted[at(peer)]);
  }

  const Schedule& schedule_;
  std::vector<bool> splits_;          // per stage: whether its backwards come in two parts
  std::vector<Positions> positions_;  // per stage
};

int peak_live(const Checker& checker, const std::vector<Action>& list) {
  int live = 0, peak = 0;
  for (const Action& action : list) {
    if (action.kind == ActionKind::forward) peak = std::max(peak, ++live);
    if (action.kind == checker.last_use(action.stage)) --live;
  }
  return peak;
}

}  // namespace

ScheduleCosts check(const Schedule& schedule, const Costs& costs) {
  const Checker checker(schedule);
  checker.run();

  ScheduleCosts figures;
  int total = 0;
  for (const auto& row : simulate(schedule, costs)) total = std::max(total, row.back().end);
  const int ideal = schedule.microbatches * schedule.chunks() * costs.sum(schedule.backward);
  figures.bubble_of_ideal = static_cast<double>(total - ideal) / ideal;
  figures.bubble_of_total = static_cast<double>(total - ideal) / total;
  for (const auto& list : schedule.ranks) {
    figures.peak_live.push_back(peak_live(checker, list));
    figures.sent.push_back(static_cast<int>(std::count_if(list.begin(), list.end(), [](const Action& action) {
      return action.kind == ActionKind::send_activation || action.kind == ActionKind::send_gradient;
    })));
    figures.messages += figures.sent.back();
  }
  return figures;
}

}  // namespace trireme::pipeline
