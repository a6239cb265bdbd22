// The generators. Each lists the computations of a rank; add_messages() then puts the messages between them.
#include "parallel/pipeline/schedule.h"

#include <algorithm>

#include "core/error.h"
#include "parallel/pipeline/messages.h"

namespace trireme::pipeline {

namespace {

Schedule make_empty(std::string name, int ranks, int microbatches, int chunks = 1) {
  if (ranks < 1 || microbatches < 1 || chunks < 1) {
    fail(ExitCode::usage, "pipeline",
         "{} needs at least 1 stage and 1 micro-batch, got {} x {} and {}; change pp of the mesh (--mesh), the "
         "schedule (--pipeline), or the micro-batches (--micro-batch)",
         name, ranks, chunks, microbatches);
  }
  Schedule schedule;
  schedule.name = std::move(name);
  schedule.stages = ranks * chunks;
  schedule.microbatches = microbatches;
  schedule.ranks.resize(static_cast<std::size_t>(ranks));
  return schedule;
}

/// What one rank computes, with one chunk.
class Computations {
 public:
  Computations(Schedule& schedule, int rank) : list_(schedule.ranks[static_cast<std::size_t>(rank)]), stage_(rank) {}

  // The next micro-batch of each kind.
  void forward() { add(ActionKind::forward, forwarded++); }
  void backward() { add(ActionKind::backward, backwarded++); }
  void backward_input() { add(ActionKind::backward_input, backwarded++); }
  void backward_weight() { add(ActionKind::backward_weight, finished++); }

  int forwarded = 0, backwarded = 0, finished = 0;

 private:
  void add(ActionKind kind, int microbatch) { list_.push_back({kind, stage_, microbatch}); }

  std::vector<Action>& list_;
  int stage_;
};

/// The number of forwards before the first backward. The first gradient reaches this rank after a forward and a
/// backward on every later rank. Meanwhile this rank may forward one micro-batch for each later rank, if there are that
/// many.
int warm_up(int rank, int ranks, int microbatches) { return std::min(ranks - 1 - rank, microbatches); }

struct Visit {
  int stage, microbatch;
};

/// Sizes of the runs in which a rank takes micro-batches through one chunk after the other: each as close to P as
/// possible, and at least P if there are P micro-batches. The first micro-batch of a run returns to rank 0, for the
/// next chunk, when rank 0 has passed on P of the run. With a shorter run rank 0 would wait.
std::vector<int> runs(int ranks, int microbatches) {
  const int count = std::max(1, microbatches / ranks);
  std::vector<int> sizes;
  for (int i = 0; i < count; ++i) sizes.push_back(microbatches / count + (i < microbatches % count ? 1 : 0));
  return sizes;  // the longest first
}

/// The order in which a rank goes through its chunks: a run of micro-batches on one chunk, the same run on the next
/// chunk, ..., then the next run.
std::vector<Visit> visits(int rank, int ranks, int microbatches, int chunks, bool last_chunk_first) {
  std::vector<Visit> order;
  int first = 0;
  for (const int size : runs(ranks, microbatches)) {
    for (int i = 0; i < chunks; ++i) {
      const int chunk = last_chunk_first ? chunks - 1 - i : i;
      for (int m = first; m < first + size; ++m) order.push_back({chunk * ranks + rank, m});
    }
    first += size;
  }
  return order;
}

}  // namespace

Schedule gpipe(int ranks, int microbatches) {
  Schedule schedule = make_empty("gpipe", ranks, microbatches);
  for (int r = 0; r < ranks; ++r) {
    Computations rank(schedule, r);
    while (rank.forwarded < microbatches) rank.forward();
    while (rank.backwarded < microbatches) rank.backward();
  }
  add_messages(schedule);
  return schedule;
}

Schedule one_f_one_b(int ranks, int microbatches) {
  Schedule schedule = make_empty("1f1b", ranks, microbatches);
  for (int r = 0; r < ranks; ++r) {
    Computations rank(schedule, r);
    while (rank.forwarded < warm_up(r, ranks, microbatches)) rank.forward();
    while (rank.forwarded < microbatches) {
      rank.forward();
      rank.backward();
    }
    while (rank.backwarded < microbatches) rank.backward();
  }
  add_messages(schedule);
  return schedule;
}

Schedule zero_bubble(int ranks, int microbatches) {
  Schedule schedule = make_empty("zero-bubble", ranks, microbatches);
  for (int r = 0; r < ranks; ++r) {
    Computations rank(schedule, r);
    while (rank.forwarded < warm_up(r, ranks, microbatches)) rank.forward();
    while (rank.forwarded < microbatches) {
      rank.forward();
      rank.backward_input();
      // Rank r has r fewer micro-batches under way than rank 0, so it may keep the weights' parts of r micro-batches.
      // So the first gradients reach rank 0 without waiting for any weights' part.
      if (rank.backwarded - rank.finished > r) rank.backward_weight();
    }
    while (rank.backwarded < microbatches) {  // weights' parts fill the gaps between the remaining gradients
      rank.backward_input();
      rank.backward_weight();
    }
    while (rank.finished < microbatches) rank.backward_weight();
  }
  add_messages(schedule);
  return schedule;
}

Schedule interleaved(int ranks, int microbatches, int chunks) {
  if (chunks == 1) {
    Schedule schedule = one_f_one_b(ranks, microbatches);
    schedule.name = "interleaved:1";
    return schedule;
  }
  Schedule schedule = make_empty(fmt::format("interleaved:{}", chunks), ranks, microbatches, chunks);
  // With fewer micro-batches than ranks: schedule as many as ranks, then omit the missing ones.
  const int counted = std::max(microbatches, ranks), run = runs(ranks, counted).front();
  for (int r = 0; r < ranks; ++r) {
    auto& list = schedule.ranks[static_cast<std::size_t>(r)];
    const auto add = [&](ActionKind kind, const Visit& visit) {
      if (visit.microbatch < microbatches) list.push_back({kind, visit.stage, visit.microbatch});
    };
    const std::vector<Visit> forwards = visits(r, ranks, counted, chunks, false);
    const std::vector<Visit> backwards = visits(r, ranks, counted, chunks, true);
    // The first backward, on the last chunk, comes after the forwards of a run on all earlier chunks, plus two more
    // forwards for every later rank: in that time an activation travels there and a gradient back.
    const std::size_t first =
        std::min(static_cast<std::size_t>(2 * (ranks - 1 - r) + (chunks - 1) * run), forwards.size());
    for (std::size_t i = 0; i < first; ++i) add(ActionKind::forward, forwards[i]);
    for (std::size_t i = first; i < forwards.size(); ++i) {
      add(ActionKind::forward, forwards[i]);
      add(ActionKind::backward, backwards[i - first]);
    }
    for (std::size_t i = forwards.size() - first; i < backwards.size(); ++i) add(ActionKind::backward, backwards[i]);
  }
  add_messages(schedule);
  return schedule;
}

Schedule forward_only(int ranks, int microbatches, int chunks) {
  Schedule schedule = make_empty("forward-only", ranks, microbatches, chunks);
  schedule.backward = false;
  for (int r = 0; r < ranks; ++r) {
    for (const Visit& visit : visits(r, ranks, microbatches, chunks, false))
      schedule.ranks[static_cast<std::size_t>(r)].push_back({ActionKind::forward, visit.stage, visit.microbatch});
  }
  add_messages(schedule);
  return schedule;
}

}  // namespace trireme::pipeline
