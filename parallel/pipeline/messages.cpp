// Adds the messages to a schedule, and decides where each receive goes.
//
// A rank posts all messages between two of its computations together, and with rendezvous sends it stays there until
// the other end of each is posted too. Usually a receive may go right before the computation that needs it. With
// several chunks per rank that may be too late: rank 0 waits at its send to rank 1, rank 1 waits at its send to rank 0
// (for the next chunk), and each would post its receive only after its next computation.
//
// So simulate the computations in time (timeline.h); messages take no time. Let t be the time at which a sender starts
// its next computation. The receive goes before its rank's first computation that starts at t or later, or before the
// one that needs it, whichever comes first. Then no cycle of waits is possible. Proof: let n(r) be the start time of
// the computation that a waiting rank r would run next. If r waits because its send has no receive yet, the receiver's
// next computation starts earlier than t = n(r). If r waits because what it receives is not sent yet, the sender has
// not made it. So the sender's next computation starts before the message is made, and the receive goes before
// computations that start later. Either way r waits for a rank with a smaller n, so the waits form no cycle.
#include "parallel/pipeline/messages.h"

#include <algorithm>
#include <limits>
#include <map>

#include "core/error.h"
#include "parallel/pipeline/timeline.h"

namespace trireme::pipeline {

namespace {

/// A receive, and when its message is made.
struct Arrival {
  int time;
  Action action;
};

/// What computation `action` sends, if it sends anything.
bool sends(const Schedule& schedule, const Action& action, Action& message) {
  if (schedule.rank_count() == 1) return false;
  if (action.kind == ActionKind::forward && action.stage < schedule.stages - 1) {
    message = {ActionKind::send_activation, action.stage, action.microbatch};
    return true;
  }
  if (is_gradient(action.kind) && action.stage > 0) {
    message = {ActionKind::send_gradient, action.stage, action.microbatch};
    return true;
  }
  return false;
}

/// Index in its rank's list of the forward or the gradient of a stage and micro-batch.
class Consumers {
 public:
  explicit Consumers(const Schedule& schedule) {
    for (const auto& list : schedule.ranks) {
      for (std::size_t i = 0; i < list.size(); ++i) {
        const Action& action = list[i];
        if (action.kind == ActionKind::forward) forwards_[{action.stage, action.microbatch}] = i;
        if (is_gradient(action.kind)) gradients_[{action.stage, action.microbatch}] = i;
      }
    }
  }
  std::size_t of(const Action& recv) const {
    const auto& map = recv.kind == ActionKind::recv_activation ? forwards_ : gradients_;
    return map.at({recv.stage, recv.microbatch});
  }

 private:
  std::map<std::pair<int, int>, std::size_t> forwards_, gradients_;
};

}  // namespace

void add_messages(Schedule& schedule) {
  const std::vector<std::vector<Interval>> timeline = simulate(schedule);
  const Consumers consumers(schedule);
  std::vector<std::vector<std::vector<Arrival>>> arrivals(schedule.ranks.size());  // [rank][before which computation]
  for (std::size_t r = 0; r < timeline.size(); ++r) {
    require(timeline[r].size() == schedule.ranks[r].size(), "pipeline",
            "{}: the computations of {} ranks wait for one another in a cycle", schedule.name, schedule.rank_count());
    arrivals[r].resize(timeline[r].size());
  }
  for (const auto& row : timeline) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      Action message;
      if (!sends(schedule, row[i].action, message)) continue;
      const int next_start = i + 1 < row.size() ? row[i + 1].start : std::numeric_limits<int>::max();
      const Action recv = counterpart(message);
      const std::size_t rank = at(schedule.rank_of(recv.stage));
      std::size_t before = consumers.of(recv);
      while (before > 0 && timeline[rank][before - 1].start >= next_start) --before;
      arrivals[rank][before].push_back({row[i].end, recv});
    }
  }
  for (std::size_t r = 0; r < timeline.size(); ++r) {
    std::vector<Action> list;
    for (std::size_t i = 0; i < timeline[r].size(); ++i) {
      auto& here = arrivals[r][i];
      std::stable_sort(here.begin(), here.end(), [](const Arrival& a, const Arrival& b) { return a.time < b.time; });
      for (const Arrival& arrival : here) list.push_back(arrival.action);
      list.push_back(timeline[r][i].action);
      if (Action message; sends(schedule, timeline[r][i].action, message)) list.push_back(message);
    }
    schedule.ranks[r] = std::move(list);
  }
}

}  // namespace trireme::pipeline
