#include "ops/plan/predict.h"

#include <algorithm>
#include <map>
#include <memory>
#include <ranges>
#include <utility>

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

double flops_of(const Trace& trace) {
  double flops = 0;
  int marks = 0;
  for (const Trace::Event& event : trace.events()) {
    marks += event.kind == Trace::EventKind::mark ? 1 : 0;
    if (marks == 1 && event.kind == Trace::EventKind::kernel)
      flops += trace.kernels()[static_cast<std::size_t>(event.index)].cost.flops;
  }
  return flops;
}

Prediction predict_all(const TrainOptions& options, const DryProgram& program, const MachineModel& machine) {
  const std::vector<int> ranks = pipeline_of(options.mesh.shape);
  const std::shared_ptr<DryFacts> facts = make_dry_facts();
  std::vector<std::unique_ptr<Trace>> traces;
  std::vector<RankProgram> programs;
  for (const int rank : std::views::reverse(ranks)) {  // the first stage needs what the last one tells it
    traces.push_back(std::make_unique<Trace>());
    dry_run_trace(options, program, rank, *traces.back(), facts);
    programs.push_back({.rank = rank, .trace = traces.back().get()});
  }
  std::reverse(programs.begin(), programs.end());
  Prediction prediction;
  for (const auto& trace : traces) prediction.flops += flops_of(*trace);
  prediction.flops *= static_cast<double>(options.mesh.shape.ranks()) / static_cast<double>(ranks.size());
  prediction.ranks = simulate(programs, machine);
  prediction.seconds = step_seconds(prediction.ranks);
  return prediction;
}

TrainOptions with_micro_batches(const TrainOptions& options, std::int64_t count) {
  TrainOptions o = options;
  o.batch = {.micro_batch = options.batch_sizes().micro_batch, .global_batch = std::nullopt, .micro_batches = count};
  return o;
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
  }
  return result;
}

}  // namespace

Prediction predict(const TrainOptions& options, const DryProgram& program, const MachineModel& machine) {
  const std::int64_t count = options.batch_sizes().micro_batches;
  const std::int64_t stages = options.mesh.shape.size(Axis::pp);
  // A pipeline that is full, twice; with whole runs of interleaved schedules.
  const std::int64_t few = std::max<std::int64_t>(2, 2 * stages), more = few + std::max<std::int64_t>(1, stages);
  if (count <= more) return predict_all(options, program, machine);
  const Prediction a = predict_all(with_micro_batches(options, few), program, machine);
  const Prediction b = predict_all(with_micro_batches(options, more), program, machine);
  return extrapolated(a, b, static_cast<double>(count - few) / static_cast<double>(more - few));
}

std::vector<std::pair<std::string, double>> parts(const Prediction& prediction) {
  std::map<std::string, double> sums;
  const auto slowest = std::max_element(prediction.ranks.begin(), prediction.ranks.end(),
                                        [](const RankTime& a, const RankTime& b) { return a.step < b.step; });
  for (const auto& [name, seconds] : slowest->kernels) {
    const bool product = name.find("gemm") != std::string::npos, attention = name.starts_with("attention");
    const bool update = name == "adamw" || name == "sgd";
    sums[product ? "products" : attention ? "attention" : update ? "optimizer" : "other kernels"] += seconds;
  }
  if (slowest->host > 0) sums["the program itself"] += slowest->host;
  for (const auto& [group, seconds] : slowest->exchanges)
    sums[group.substr(0, group.find('['))] += seconds;  // "tp" of "tp[pp=0,data=1]"
  double rest = slowest->step;
  for (const auto& [name, seconds] : sums) rest -= seconds;
  if (rest > 1e-6 * slowest->step) sums["waiting for a core"] = rest;
  std::vector<std::pair<std::string, double>> sorted(sums.begin(), sums.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return sorted;
}

RankMemory largest_memory(const TrainOptions& options, const DryProgram& program) {
  RankMemory most;
  const std::vector<int> ranks = pipeline_of(options.mesh.shape);
  for (const int rank : {ranks.front(), ranks.back()}) {
    const RankMemory memory = dry_run_memory(options, program, rank);
    if (memory.peak > most.peak) most = memory;
    if (ranks.size() == 1) break;
  }
  return most;
}

}  // namespace trireme::plan
