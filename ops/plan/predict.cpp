#include "ops/plan/predict.h"

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <utility>

#include "ops/plan/alike.h"
#include "ops/plan/at_once.h"
#include "ops/plan/cluster.h"
#include "parallel/pipeline/schedules.h"

namespace trireme::plan {
namespace {

/// World ranks of the pipeline whose other coordinates are 0.
std::vector<int> pipeline_of(const MeshShape& mesh) {
  std::vector<int> ranks;
  for (int stage = 0; stage < mesh.size(Axis::pp); ++stage)
    ranks.push_back(stage * mesh.size(Axis::data) * mesh.size(Axis::tp));
  return ranks;
}

/// Of the last step.
double flops_of(const Trace& trace) {
  double flops = 0, before = 0;
  for (const Trace::Event& event : trace.events()) {
    if (event.kind == Trace::EventKind::mark) before = std::exchange(flops, 0);
    if (event.kind == Trace::EventKind::kernel)
      flops += trace.kernels()[static_cast<std::size_t>(event.index)].cost.flops;
  }
  return before;
}

/// Each pipeline rank has a dry run of its own.
std::vector<int> own_runs(const TrainOptions& options) {
  std::vector<int> ranks(static_cast<std::size_t>(options.mesh.shape.size(Axis::pp)));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

/// `like`: for each pipeline rank one whose trace tells its own. `recording`: is filled in, unless it is null.
Prediction predict_all(const TrainOptions& options, const DryProgram& program, const MachineModel& machine, int threads,
                       const std::vector<int>& like, Recording* recording = nullptr) {
  const std::vector<int> ranks = pipeline_of(options.mesh.shape);
  const std::shared_ptr<DryFacts> facts = make_dry_facts();
  std::vector<Trace> traces(ranks.size());
  if (recording != nullptr)
    for (Trace& trace : traces) trace.watch_memory(options.precision.tensor_device());
  Prediction prediction;
  prediction.memory.resize(ranks.size());
  const auto own = [&](std::size_t stage) { return like[stage] == static_cast<int>(stage); };
  const auto run = [&](std::size_t stage) {
    if (own(stage)) prediction.memory[stage] = dry_run_trace(options, program, ranks[stage], traces[stage], facts);
  };
  run(ranks.size() - 1);  // the first stage needs what the last one tells it
  for_each_at_once(ranks.size() - 1, threads, run);
  const pipeline::Schedule schedule = schedule_of(options);
  for (std::size_t stage = 0; stage < ranks.size(); ++stage) {
    if (own(stage)) continue;
    const auto other = static_cast<std::size_t>(like[stage]);
    traces[stage] = moved(traces[other], options.mesh.shape, schedule, like[stage], static_cast<int>(stage));
    prediction.memory[stage] = prediction.memory[other];
  }
  std::vector<RankProgram> programs;
  const int others = options.mesh.shape.ranks() / static_cast<int>(ranks.size()) - 1;  // of a stage
  for (std::size_t stage = 0; stage < ranks.size(); ++stage) {
    programs.push_back({.rank = ranks[stage], .trace = &traces[stage], .like_it = others + 1});
    prediction.flops += flops_of(traces[stage]);
  }
  prediction.flops *= static_cast<double>(options.mesh.shape.ranks()) / static_cast<double>(ranks.size());
  prediction.ranks = simulate(programs, machine, recording == nullptr ? nullptr : &recording->timeline);
  prediction.seconds = step_seconds(prediction.ranks);
  if (recording != nullptr) {
    recording->micro_batches = options.batch_sizes().micro_batches;
    recording->traces = std::move(traces);
  }
  return prediction;
}

/// a + (b - a) times `steps`, in everything.
Prediction extrapolated(const Prediction& a, const Prediction& b, double steps) {
  const auto line = [steps](double x, double y) { return x + (y - x) * steps; };
  const auto lines = [&](const auto& x, auto y) {
    for (auto& [name, seconds] : y) seconds = line(x.count(name) > 0 ? x.at(name) : 0, seconds);
    return y;
  };
  Prediction result = b;
  result.seconds = line(a.seconds, b.seconds);
  result.flops = line(a.flops, b.flops);
  for (std::size_t i = 0; i < result.ranks.size(); ++i) {
    RankTime& rank = result.ranks[i];
    const RankTime &x = a.ranks[i], &y = b.ranks[i];
    rank.step = line(x.step, y.step);
    rank.host = line(x.host, y.host);
    rank.kernels = lines(x.kernels, y.kernels);
    rank.exchanges = lines(x.exchanges, y.exchanges);
    RankMemory& memory = result.memory[i];
    const auto bytes = [&line](std::int64_t low, std::int64_t high) {
      return static_cast<std::int64_t>(std::min(line(static_cast<double>(low), static_cast<double>(high)), 0x1p62));
    };
    for (std::size_t c = 0; c < memory.peaks.size(); ++c) {
      memory.at_peak[c] = bytes(a.memory[i].at_peak[c], b.memory[i].at_peak[c]);
      memory.peaks[c] = bytes(a.memory[i].peaks[c], b.memory[i].peaks[c]);
    }
    memory.peak = bytes(a.memory[i].peak, b.memory[i].peak);
  }
  return result;
}

}  // namespace

TrainOptions with_micro_batches(const TrainOptions& options, std::int64_t count) {
  TrainOptions o = options;
  o.batch = {.micro_batch = options.batch_sizes().micro_batch, .global_batch = std::nullopt, .micro_batches = count};
  return o;
}

std::pair<std::int64_t, std::int64_t> few_micro_batches(const TrainOptions& options) {
  const std::int64_t stages = options.mesh.shape.size(Axis::pp);
  // Interleaved schedules have runs of as many micro-batches as there are ranks, and a rest.
  const bool has_runs = pipeline::chunks_per_rank(options.mesh.pipeline) > 1;
  const std::int64_t rest = options.batch_sizes().micro_batches % stages;
  const std::int64_t few = has_runs ? 2 * stages + rest : stages + 1;
  return {few, few + (has_runs ? stages : 1)};
}

const RankMemory& Prediction::most_memory() const { return *std::ranges::max_element(memory, {}, &RankMemory::peak); }

Prediction predict(const TrainOptions& options, const DryProgram& program, const MachineModel& machine, int threads,
                   bool share) {
  const std::int64_t count = options.batch_sizes().micro_batches;
  const auto [few, more] = few_micro_batches(options);
  const std::vector<int> like =
      share ? alike_ranks(with_micro_batches(options, std::min(count, few)), program, threads) : own_runs(options);
  if (count <= more) return predict_all(options, program, machine, threads, like);
  const Prediction a = predict_all(with_micro_batches(options, few), program, machine, threads, like);
  const Prediction b = predict_all(with_micro_batches(options, more), program, machine, threads, like);
  return extrapolated(a, b, static_cast<double>(count - few) / static_cast<double>(more - few));
}

Recording record(const TrainOptions& options, const DryProgram& program, const MachineModel& machine, int threads) {
  const std::int64_t count = std::min(options.batch_sizes().micro_batches, few_micro_batches(options).second);
  Recording recording{.of = options.batch_sizes().micro_batches, .traces = {}, .timeline = {}};
  predict_all(with_micro_batches(options, count), program, machine, threads, own_runs(options), &recording);
  return recording;
}

const RankTime& busiest(const Prediction& prediction) {
  return *std::ranges::max_element(prediction.ranks, {}, [](const RankTime& rank) {
    double seconds = rank.host;
    for (const auto& [kernel, time] : rank.kernels) seconds += time;
    return seconds;
  });
}

std::vector<std::pair<std::string, double>> parts(const Prediction& prediction) {
  std::map<std::string, double> sums;
  const RankTime& rank = busiest(prediction);
  for (const auto& [kernel, seconds] : rank.kernels) sums[std::string(name(kernel_kind(kernel)))] += seconds;
  if (rank.host > 0) sums["the program itself"] += rank.host;
  for (const auto& [group, seconds] : rank.exchanges) {  // "tp" of "tp[pp=0,data=1]", "dp" of "shards 0 of dp[..]"
    const std::size_t of = group.find(" of ");
    const std::string axis = of == std::string::npos ? group : group.substr(of + 4);
    sums[axis.substr(0, axis.find('['))] += seconds;
  }
  if (prediction.seconds > rank.step) sums["waiting for the last rank"] = prediction.seconds - rank.step;
  double rest = prediction.seconds;
  for (const auto& [part, seconds] : sums) rest -= seconds;
  if (rest > 1e-6 * rank.step) sums["waiting for a core"] = rest;
  std::vector<std::pair<std::string, double>> sorted(sums.begin(), sums.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return sorted;
}

ModelFacts model_facts(const TrainOptions& options, const DryProgram& program) {
  TrainOptions o = options;
  o.mesh = {};
  o.mesh.shape = parse_mesh(o.mesh.axes, 0);
  o.precision.recompute = "none";
  o.batch = {.micro_batch = 1, .global_batch = std::nullopt, .micro_batches = 1};
  Trace trace;
  const RankMemory memory = dry_run_trace(o, program, 0, trace, nullptr);
  const auto most = [&memory](MemoryCategory c) { return memory.peaks[static_cast<std::size_t>(c)]; };
  const std::int64_t weights = most(MemoryCategory::parameters);
  return {.parameters = weights / static_cast<std::int64_t>(size_of(o.precision.dtype)),
          .flops = flops_of(trace),
          .weights = weights,
          .gradients = most(MemoryCategory::gradients),
          .optimizer = most(MemoryCategory::optimizer),
          .offloaded = most(MemoryCategory::offloaded)};
}

}  // namespace trireme::plan
