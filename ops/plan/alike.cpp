#include "ops/plan/alike.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "ops/plan/at_once.h"
#include "ops/plan/predict.h"

namespace trireme::plan {
namespace {

using pipeline::Action;
using pipeline::ActionKind;
using pipeline::Schedule;

/// World ranks from one pipeline rank to the next.
int stride_of(const MeshShape& mesh) { return mesh.size(Axis::data) * mesh.size(Axis::tp); }

/// The most micro-batches, counted in each stage, of which a rank keeps activations.
int most_kept(const std::vector<Action>& actions) {
  int kept = 0, most = 0;
  for (const Action& action : actions) {
    if (action.kind == ActionKind::forward) most = std::max(most, ++kept);
    if (action.kind == ActionKind::backward || action.kind == ActionKind::backward_weight) --kept;
  }
  return most;
}

}  // namespace

Schedule schedule_of(const TrainOptions& options) {
  return pipeline::make_schedule(options.mesh.pipeline, options.mesh.shape.size(Axis::pp),
                                 static_cast<int>(options.batch_sizes().micro_batches));
}

bool runs_the_same(const Trace& a, const Trace& b) {
  const auto same_events = [](const Trace::Event& x, const Trace::Event& y) {
    return x.kind == y.kind && x.index == y.index;
  };
  const auto same_kernels = [](const ProfileEvent& x, const ProfileEvent& y) { return identity(x) == identity(y); };
  const auto same_transfers = [](const Trace::Transfer& x, const Trace::Transfer& y) {
    return x.kind == y.kind && x.bytes == y.bytes && x.background == y.background && x.group == y.group;
  };
  return std::ranges::equal(a.events(), b.events(), same_events) &&
         std::ranges::equal(a.kernels(), b.kernels(), same_kernels) &&
         std::ranges::equal(a.transfers(), b.transfers(), same_transfers);
}

std::vector<int> alike_ranks(const TrainOptions& options, const DryProgram& program, int threads) {
  const int ranks = options.mesh.shape.size(Axis::pp);
  std::vector<int> like(static_cast<std::size_t>(ranks));
  std::iota(like.begin(), like.end(), 0);
  if (ranks <= 2 || options.mesh.zero == 3) return like;  // the first and the last differ
  const TrainOptions one = with_micro_batches(options, 1);
  std::vector<Trace> traces(like.size());
  const std::shared_ptr<DryFacts> facts = make_dry_facts();
  const auto run = [&](std::size_t rank) {
    dry_run_trace(one, program, static_cast<int>(rank) * stride_of(options.mesh.shape), traces[rank], facts, {}, 1);
  };
  run(like.size() - 1);  // the first needs what the last one tells it
  for_each_at_once(like.size() - 1, threads, run);
  const Schedule schedule = schedule_of(options);
  for (std::size_t rank = 1; rank + 1 < like.size(); ++rank) {
    std::size_t best = rank;
    for (std::size_t other = like.size() - 2; other >= 1; --other)
      if (most_kept(schedule.ranks[other]) >= most_kept(schedule.ranks[best]) &&
          runs_the_same(traces[other], traces[rank]))
        best = other;
    like[rank] = static_cast<int>(best);
  }
  return like;
}

Trace moved(const Trace& trace, const MeshShape& mesh, const Schedule& schedule, int from, int to) {
  const int ranks = mesh.size(Axis::pp), stride = stride_of(mesh), shift = (to - from) * stride;
  const auto pipeline_rank = [stride](int rank) { return rank / stride; };

  std::vector<Trace::Group> groups = trace.groups();
  for (Trace::Group& group : groups) {
    if (!std::ranges::all_of(group.members, [&](int m) { return pipeline_rank(m) == from; })) continue;
    for (int& member : group.members) member += shift;
    const std::string old = fmt::format("pp={}", from);
    if (const auto place = group.name.find(old); place != std::string::npos)
      group.name.replace(place, old.size(), fmt::format("pp={}", to));
  }
  std::vector<Trace::Transfer> transfers = trace.transfers();
  for (Trace::Transfer& transfer : transfers) {
    if (transfer.kind == Trace::TransferKind::collective) continue;
    transfer.peer = (transfer.peer + shift + ranks * stride) % (ranks * stride);
    transfer.tag += 2 * (to - from);  // parallel/pipeline/executor.cpp: two for each stage
  }

  // Each step: what comes before the first action, the actions in the order of `to`, each with what follows it, and what
  // comes after the last.
  const std::vector<Trace::Event>& all = trace.events();
  std::vector<Trace::Event> events;
  const auto append = [&](std::size_t begin, std::size_t end) {
    events.insert(events.end(), all.begin() + static_cast<std::ptrdiff_t>(begin),
                  all.begin() + static_cast<std::ptrdiff_t>(end));
  };
  const auto part_count = static_cast<std::size_t>(std::ranges::count_if(
      schedule.ranks[pipeline::at(to)], [](const Action& action) { return !is_message(action.kind); }));
  const std::vector<Trace::Part>& parts = trace.parts();
  std::size_t done = 0;
  for (std::size_t first = 0; first < parts.size(); first += part_count) {
    const std::size_t end = first + part_count;  // of this step's parts
    std::map<std::tuple<std::string, int, int>, std::size_t> places;
    for (std::size_t p = first; p < end; ++p)
      places[{parts[p].kind, parts[p].stage + to - from, parts[p].micro_batch}] = p;
    append(done, parts[first].begin);
    std::size_t last = first;
    for (const Action& action : schedule.ranks[pipeline::at(to)]) {
      if (is_message(action.kind)) continue;
      last = places.at({std::string(name(action.kind)), action.stage, action.microbatch});
      append(parts[last].begin, last + 1 == end ? parts[last].end : parts[last + 1].begin);
    }
    done = parts[end - 1].end;
    if (last + 1 != end)
      fail(ExitCode::internal, "plan", "pipeline ranks {} and {} end with other actions; expected the same", from, to);
  }
  append(done, all.size());
  return trace.with(std::move(groups), std::move(transfers), std::move(events));
}

}  // namespace trireme::plan
