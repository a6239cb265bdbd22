#include "ops/plan/bounds.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "ops/plan/alike.h"
#include "parallel/pipeline/schedules.h"

namespace trireme::plan {

using pipeline::ActionKind;

namespace {

std::int64_t most(const RankMemory& memory, MemoryCategory category) {
  return memory.peaks[static_cast<std::size_t>(category)];
}

/// As many stages as the model has blocks, and as few data-parallel ranks as ep allows.
TrainOptions with_a_block_per_stage(const TrainOptions& options, int blocks, int cp, int tp, int ep) {
  TrainOptions o = options;
  o.mesh.shape = {{blocks, ep / std::gcd(ep, cp), cp, tp, ep}};
  o.mesh.axes = to_string(o.mesh.shape);
  o.mesh.zero = 0;
  o.mesh.dp_shard.reset();
  o.mesh.pipeline = "gpipe";  // keeps all micro-batches
  o.mesh.stage_layers = "auto";
  return o;
}

/// The data-parallel ranks over which ZeRO shards.
int sharing_ranks(const MeshOptions& mesh) {
  return static_cast<int>(mesh.dp_shard.value_or(mesh.shape.size(Axis::data)));
}

struct Run {
  Trace trace;
  RankMemory memory;
};

/// A step of some micro-batches, by a rank whose stage is block `block`.
Run run_block(const TrainOptions& options, const DryProgram& program, std::size_t block, std::int64_t micro_batches) {
  const MeshShape& mesh = options.mesh.shape;
  const int rank = static_cast<int>(block) * mesh.size(Axis::data) * mesh.size(Axis::tp);
  Run run;
  run.trace.watch_memory(options.precision.tensor_device());
  run.memory = dry_run_trace(with_micro_batches(options, micro_batches), program, rank, run.trace, nullptr, {}, 1);
  return run;
}

/// Bytes of the activation that a stage sends to the next; of a gradient it is as many.
std::int64_t output_bytes(const Trace& trace) {
  std::int64_t most = 0;
  for (const Trace::Transfer& transfer : trace.transfers())
    if (transfer.kind == Trace::TransferKind::send) most = std::max(most, transfer.bytes);
  return most;
}

/// The events of a forward without the small kernels at its beginning and end, such as copies of ids: a stage of several
/// blocks runs these once.
std::pair<std::size_t, std::size_t> work_of_block(const Trace& trace, const Trace::Part& forward) {
  const auto is_small = [&](std::size_t e) {
    const Trace::Event& event = trace.events()[e];
    return event.kind != Trace::EventKind::kernel ||
           trace.kernels()[static_cast<std::size_t>(event.index)].cost.bytes < static_cast<double>(output_bytes(trace));
  };
  std::size_t begin = forward.begin, end = forward.end;
  while (begin < end && is_small(begin)) ++begin;
  while (begin < end && is_small(end - 1)) --end;
  return {begin, end};
}

/// Gathers and scattered sums in the background, of groups of `data` ranks.
std::vector<Trace::Transfer> exchanges_of(const Trace& trace, int data) {
  std::vector<Trace::Transfer> some;
  for (const Trace::Transfer& transfer : trace.transfers()) {
    const auto kind = transfer.collective.kind;
    const bool is_share = kind == comm::CollectiveKind::all_gather || kind == comm::CollectiveKind::reduce_scatter;
    const auto group = static_cast<std::size_t>(transfer.group);
    if (transfer.kind == Trace::TransferKind::collective && transfer.background && is_share &&
        trace.groups()[group].members.size() == static_cast<std::size_t>(data))
      some.push_back(transfer);
  }
  return some;
}

bool are_alike(const Run& a, const Run& b) {
  return a.memory.peaks == b.memory.peaks && runs_the_same(a.trace, b.trace);
}

bool splits_backward(const TrainOptions& options) {
  const auto schedule = pipeline::make_schedule(options.mesh.pipeline, options.mesh.shape.size(Axis::pp), 1);
  return std::ranges::any_of(schedule.ranks[0],
                             [](const pipeline::Action& action) { return action.kind == ActionKind::backward_weight; });
}

/// The message that a forward or backward has to wait for; none if its input is on the same rank.
std::optional<pipeline::Action> awaited(const pipeline::Schedule& schedule, const pipeline::Action& action) {
  const bool is_forward = action.kind == ActionKind::forward;
  if (!is_forward && !is_gradient(action.kind)) return std::nullopt;
  const int from = action.stage + (is_forward ? -1 : 1);
  if (from < 0 || from == schedule.stages || schedule.rank_of(from) == schedule.rank_of(action.stage))
    return std::nullopt;
  return pipeline::Action{is_forward ? ActionKind::send_activation : ActionKind::send_gradient, from,
                          action.microbatch};
}

/// Runs a schedule: a forward or backward takes `seconds(action)`, and a message arrives `message(action)` after it was
/// sent. Calls `then(rank, action)` after each action. Returns the time at which each rank is done.
template <class Seconds, class Message, class Then>
std::vector<double> run(const pipeline::Schedule& schedule, const Seconds& seconds, const Message& message,
                        const Then& then) {
  std::vector<double> now(schedule.ranks.size());
  std::vector<std::size_t> done(schedule.ranks.size());
  std::map<std::tuple<ActionKind, int, int>, double> arrived;
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    for (std::size_t rank = 0; rank < done.size(); ++rank)
      for (const auto& actions = schedule.ranks[rank]; done[rank] < actions.size(); ++done[rank], goes_on = true) {
        const pipeline::Action& action = actions[done[rank]];
        if (const auto other = awaited(schedule, action)) {
          const auto when = arrived.find({other->kind, other->stage, other->microbatch});
          if (when == arrived.end()) break;  // the other rank is not so far
          now[rank] = std::max(now[rank], when->second);
        }
        if (is_message(action.kind))
          arrived[{action.kind, action.stage, action.microbatch}] = now[rank] + message(action);
        else
          now[rank] += seconds(action);
        then(rank, action);
      }
  }
  return now;
}

}  // namespace

const pipeline::StagePlan& Bounds::plan_of(const TrainOptions& options) {
  Plan* plan = nullptr;
  {
    const std::scoped_lock lock(mutex_);
    plan = &plans_[options.mesh.stages()];
  }
  std::call_once(plan->once, [&] {
    TrainOptions o = options;
    o.mesh.shape = {{options.mesh.shape.size(Axis::pp), 1, 1, 1, 1}};
    o.mesh.axes = to_string(o.mesh.shape);
    plan->stages = dry_run_plan(o, program_);
  });
  return plan->stages;
}

const Bounds::Kinds& Bounds::kinds_of(const TrainOptions& options) {
  Kinds* kinds = nullptr;
  {
    const std::scoped_lock lock(mutex_);
    kinds = &kinds_[options.precision.recompute];
  }
  std::call_once(kinds->once, [&] {
    TrainOptions o = with_a_block_per_stage(options, plan_of(options).back().end(), 1, 1, 1);
    o.batch.micro_batch = 1;
    std::vector<Run> firsts;
    for (std::size_t block = 0; block < static_cast<std::size_t>(o.mesh.shape.size(Axis::pp)); ++block) {
      Run run = run_block(o, program_, block, 1);
      kinds->weights += most(run.memory, MemoryCategory::parameters);
      kinds->gradients += most(run.memory, MemoryCategory::gradients);
      kinds->optimizer += most(run.memory, MemoryCategory::optimizer);
      const auto same = std::ranges::find_if(firsts, [&](const Run& first) { return are_alike(first, run); });
      kinds->of_block.push_back(static_cast<std::size_t>(same - firsts.begin()));
      if (same != firsts.end()) continue;
      kinds->first.push_back(block);
      firsts.push_back(std::move(run));
    }
    kinds->weights -= model_.weights;
    kinds->gradients -= model_.gradients;
    kinds->optimizer -= model_.optimizer;
  });
  return *kinds;
}

void Bounds::add_block(Blocks& blocks, const TrainOptions& options, std::size_t block) const {
  const Run one = run_block(options, program_, block, 1), two = run_block(options, program_, block, 2);
  Needs needs{.weights = most(one.memory, MemoryCategory::parameters),
              .gradients = most(one.memory, MemoryCategory::gradients),
              .optimizer = most(one.memory, MemoryCategory::optimizer),
              .activations = most(one.memory, MemoryCategory::activations),
              .output = output_bytes(one.trace)};
  // A stage of one block keeps its output, too, which in a longer stage is the next block's input.
  needs.kept = most(two.memory, MemoryCategory::activations) - needs.activations - needs.output;
  const auto activations_at = [&](std::size_t event) {
    return two.trace.memory()[event][static_cast<std::size_t>(MemoryCategory::activations)];
  };
  for (const Trace::Part& part : two.trace.parts()) {
    if (part.micro_batch != 0) continue;  // the last one also makes what is done once in a step
    if (part.kind == name(ActionKind::forward)) {
      const auto [begin, end] = work_of_block(two.trace, part);
      needs.forward += seconds(two.trace, begin, end);
    } else if (part.kind == name(ActionKind::backward_weight)) {
      needs.backward_weight += seconds(two.trace, part.begin, part.end);
      needs.deferred += activations_at(part.begin) - activations_at(part.end);
    } else {
      needs.backward += seconds(two.trace, part.begin, part.end);
    }
  }
  blocks.kinds.push_back(needs);
  blocks.data = options.mesh.shape.size(Axis::data);
  blocks.exchanges.push_back({exchanges_of(two.trace, blocks.data), exchanges_of(one.trace, blocks.data)});
}

/// What a transfer among `of_ranks` ranks takes among those of `mesh` that share: each has a smaller share.
double Bounds::exchange_seconds(const Trace::Transfer& transfer, int of_ranks, const MeshOptions& mesh) const {
  Trace::Group group{"data", {}};
  for (int rank = 0; rank < sharing_ranks(mesh); ++rank) group.members.push_back(rank * mesh.shape.size(Axis::tp));
  Trace::Transfer there = transfer;
  there.bytes = transfer.bytes * of_ranks / sharing_ranks(mesh);
  return machine_.collective(there, group).link;
}

const Bounds::Blocks& Bounds::blocks_of(const TrainOptions& options, const Kinds& kinds, bool close) {
  const MeshShape& mesh = options.mesh.shape;
  TrainOptions o = with_a_block_per_stage(options, static_cast<int>(kinds.of_block.size()), mesh.size(Axis::cp),
                                          mesh.size(Axis::tp), mesh.size(Axis::ep));
  if (close && options.mesh.zero >= 2 && mesh.size(Axis::data) > 1) {  // lower stages differ only in the update
    o.mesh.zero = options.mesh.zero;
    if (o.mesh.shape.size(Axis::data) == 1) o.mesh.shape.at(Axis::dp) = 2;
  }
  if (close && splits_backward(options)) o.mesh.pipeline = options.mesh.pipeline;
  o.mesh.axes = to_string(o.mesh.shape);
  Blocks* blocks = nullptr;
  {
    const std::scoped_lock lock(mutex_);
    blocks = &blocks_[{o.mesh.axes, options.batch_sizes().micro_batch, options.precision.recompute, o.mesh.zero,
                       o.mesh.pipeline}];
  }
  std::call_once(blocks->once, [&] {
    for (const std::size_t block : kinds.first) add_block(*blocks, o, block);
  });
  return *blocks;
}

/// Of kernels, and of collectives that the rank waits for.
double Bounds::seconds(const Trace& trace, std::size_t begin, std::size_t end) const {
  double sum = 0;
  for (std::size_t e = begin; e < end; ++e) {
    const Trace::Event& event = trace.events()[e];
    const auto index = static_cast<std::size_t>(event.index);
    if (event.kind == Trace::EventKind::kernel) sum += machine_.kernel(trace.kernels()[index]);
    if (event.kind != Trace::EventKind::wait) continue;
    const Trace::Transfer& transfer = trace.transfers()[index];
    if (transfer.kind == Trace::TransferKind::collective && !transfer.background)
      sum += machine_.collective(transfer, trace.groups()[static_cast<std::size_t>(transfer.group)]).link;
  }
  return sum;
}

void Bounds::Needs::add(const Needs& next) {
  forward += next.forward;
  backward += next.backward;
  backward_weight += next.backward_weight;
  exchanges += next.exchanges;
  weights += next.weights;
  gradients += next.gradients;
  optimizer += next.optimizer;
  activations = std::max(activations, kept + next.activations);
  kept += next.kept;
  deferred += next.deferred;
  output = next.output;
}

std::vector<Bounds::Needs> Bounds::stages_of(const TrainOptions& options, bool close) {
  const pipeline::StagePlan& plan = plan_of(options);
  const Kinds& kinds = kinds_of(options);
  std::vector<Needs> needs = blocks_of(options, kinds, false).kinds;
  if (close) {  // times alone: how much memory a rank needs under ZeRO depends on the number of ranks
    const Blocks& blocks = blocks_of(options, kinds, true);
    for (std::size_t kind = 0; kind < needs.size(); ++kind) {
      const Needs& theirs = blocks.kinds[kind];
      needs[kind].forward = theirs.forward;
      needs[kind].backward = theirs.backward;
      needs[kind].backward_weight = theirs.backward_weight;
      needs[kind].deferred = theirs.deferred;
      for (const double sign : {1.0, -1.0})
        for (const Trace::Transfer& transfer : blocks.exchanges[kind][sign > 0 ? 0 : 1]) {
          const double seconds = sign * exchange_seconds(transfer, blocks.data, options.mesh);
          needs[kind].exchanges += seconds;
          if (transfer.collective.kind == comm::CollectiveKind::all_gather) needs[kind].gathers += seconds;
        }
    }
  }
  std::vector<Needs> stages(plan.size());
  for (std::size_t stage = 0; stage < plan.size(); ++stage)
    for (int block = plan[stage].first; block < plan[stage].end(); ++block) {
      const Needs& one = needs[kinds.of_block[static_cast<std::size_t>(block)]];
      stages[stage].add(one);
      // ZeRO 3 gathers weights again for backward, but for the last ones, which are still there.
      if (plan[stage].end() - block > 2) stages[stage].exchanges += one.gathers;
    }
  if (options.mesh.shape.size(Axis::pp) == 1) {  // tied weights are there once
    stages[0].weights -= kinds.weights;
    stages[0].gradients -= kinds.gradients;
    stages[0].optimizer -= kinds.optimizer;
  }
  return stages;
}

LowerBound Bounds::bound_of_schedule(const TrainOptions& options, const std::vector<Needs>& stages,
                                     std::int64_t micro_batches) const {
  const int data = sharing_ranks(options.mesh);
  const std::int64_t zero = data > 1 ? options.mesh.zero : 0;
  const pipeline::Schedule schedule = pipeline::make_schedule(options.mesh.pipeline, options.mesh.shape.size(Axis::pp),
                                                              static_cast<int>(micro_batches));
  std::vector<std::int64_t> state(schedule.ranks.size()), kept = state, peak = state;  // bytes, by rank
  for (std::size_t s = 0; s < stages.size(); ++s)
    state[s % state.size()] +=
        (zero < 3 ? stages[s].weights : 0) + (zero < 1 ? stages[s].optimizer : stages[s].optimizer / data);
  const auto seconds = [&](const pipeline::Action& action) {
    const Needs& stage = stages[pipeline::at(action.stage)];
    if (action.kind == ActionKind::forward) return stage.forward;
    if (action.kind == ActionKind::backward_input) return stage.backward;
    if (action.kind == ActionKind::backward_weight) return stage.backward_weight;
    return stage.backward + stage.backward_weight;
  };
  const int apart = options.mesh.shape.size(Axis::data) * options.mesh.shape.size(Axis::tp);  // ranks of two stages
  const auto message = [&](const pipeline::Action& action) {
    const int to = action.stage + (action.kind == ActionKind::send_activation ? 1 : -1);
    if (to < 0 || to >= schedule.stages) return 0.0;
    const Trace::Transfer transfer{.kind = Trace::TransferKind::send,
                                   .peer = apart * schedule.rank_of(to),
                                   .bytes = stages[pipeline::at(std::min(action.stage, to))].output};
    return machine_.message(transfer, apart * schedule.rank_of(action.stage)).link;
  };
  const std::vector<double> ends =
      run(schedule, seconds, message, [&](std::size_t rank, const pipeline::Action& action) {
        const Needs& stage = stages[pipeline::at(action.stage)];
        const bool is_forward = action.kind == ActionKind::forward;
        if (is_gradient(action.kind)) kept[rank] -= stage.kept;
        if (is_gradient(action.kind) || is_forward) peak[rank] = std::max(peak[rank], kept[rank] + stage.activations);
        if (is_forward) kept[rank] += stage.kept;
        if (action.kind == ActionKind::backward_input) kept[rank] += stage.deferred;
        if (action.kind == ActionKind::backward_weight) kept[rank] -= stage.deferred;
        const bool makes_gradients = action.kind == ActionKind::backward || action.kind == ActionKind::backward_weight;
        if (makes_gradients && action.microbatch == 0 && zero < 2) kept[rank] += stage.gradients;
      });
  constexpr double sure = 0.98;  // blocks of one stage may share other small tensors
  LowerBound bound{.seconds = std::ranges::max(ends)};
  for (std::size_t rank = 0; rank < state.size(); ++rank)
    bound.memory =
        std::max(bound.memory, state[rank] + static_cast<std::int64_t>(sure * static_cast<double>(peak[rank])));
  return bound;
}

LowerBound Bounds::bound(const TrainOptions& options, bool close) {
  std::vector<Needs> stages = stages_of(options, close);
  if (splits_backward(options) && !close)
    for (Needs& stage : stages) stage.backward -= stage.backward_weight = stage.backward / 2;  // at most half
  const std::int64_t count = options.batch_sizes().micro_batches;
  const auto [few, more] = few_micro_batches(options);
  LowerBound bound = bound_of_schedule(options, stages, std::min(count, more));
  for (const Needs& stage : stages) bound.work += stage.forward + stage.backward + stage.backward_weight;
  bound.work *= static_cast<double>(count) / options.mesh.shape.size(Axis::pp);
  std::vector<double> exchanges(static_cast<std::size_t>(options.mesh.shape.size(Axis::pp)));
  for (std::size_t s = 0; s < stages.size(); ++s) exchanges[s % exchanges.size()] += stages[s].exchanges;
  const double least = static_cast<double>(count) * std::ranges::max(exchanges);
  if (count <= more) {
    bound.seconds = std::max(bound.seconds, least);
    return bound;
  }
  const double each =
      (bound.seconds - bound_of_schedule(options, stages, few).seconds) / static_cast<double>(more - few);
  bound.seconds = std::max(bound.seconds + each * static_cast<double>(count - more), least);
  return bound;
}

std::int64_t least_memory(const TrainOptions& options, const ModelFacts& model) {
  const MeshShape& mesh = options.mesh.shape;
  const std::int64_t parts = std::int64_t{mesh.size(Axis::pp)} * mesh.size(Axis::tp) * mesh.size(Axis::ep);
  const std::int64_t zero = mesh.size(Axis::data) > 1 ? options.mesh.zero : 0;
  return ((zero < 3 ? model.weights : 0) + (zero < 2 ? model.gradients : 0) + (zero < 1 ? model.optimizer : 0)) / parts;
}

}  // namespace trireme::plan
