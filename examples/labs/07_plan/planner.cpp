#include "examples/labs/07_plan/planner.h"

#include <fmt/ranges.h>

#include "check/parity/parity.h"
#include "ops/plan/cluster.h"
#include "ops/plan/predict.h"
#include "ops/plan/report.h"
#include "ops/plan/search.h"
#include "train/gpt/parity_options.h"

namespace trireme::labs::planning {
namespace {

const plan::ClusterModel& machine() {
  static const plan::ClusterModel model(plan::read_cluster(machine_file));
  return model;
}

/// Fills in what a setting leaves open: stages of equally many blocks; and the GPU, after validation, which would miss it
/// on a machine without one.
void make_ready(GptOptions& options) {
  const int pp = parse_mesh(options.mesh.axes, 0).size(Axis::pp);
  const auto layers = options.model.config.layers / pp;
  options.mesh.stage_layers = fmt::format("{}", fmt::join(std::vector(at(pp), layers), ","));
  options.precision.device = name(Device::cpu);
  resolve_parity(options, parse_mesh(options.mesh.axes, 0).ranks());
  options.precision.device = name(Device::cuda);
}

std::int64_t whole(double size) { return static_cast<std::int64_t>(size); }

GptOptions options_of(const Model& model, const Setting& setting) {
  GptOptions options = parity_defaults();
  options.model.config = {.layers = whole(model.layers),
                          .heads = whole(model.heads),
                          .width = whole(model.width),
                          .context = whole(model.context),
                          .vocab = whole(model.vocab)};
  options.model.vocab = whole(model.vocab);
  options.batch = {.micro_batch = setting.micro_batch, .micro_batches = setting.micro_batches};
  options.mesh.axes = fmt::format("dp={},tp={},pp={}", setting.dp, setting.tp, setting.pp);
  options.mesh.zero = setting.zero;
  options.precision.dtype = model.dtype;
  options.precision.recompute = setting.recompute ? "full" : "none";
  options.precision.threads = 1;
  make_ready(options);
  return options;
}

DryProgram program_of(const GptOptions& options) { return dry_program(gpt_parity(options.model.config), options); }

}  // namespace

Cluster cluster_of(int devices, double memory) {
  const plan::Cluster c = plan::read_cluster(machine_file);
  const auto link = [](const comm::Link& l) { return Cluster::Link{l.latency, 1 / l.seconds_per_byte}; };
  return {.devices = devices,
          .per_node = c.links.ranks_per_node,
          .memory = memory,
          .flops = c.device.bf16_flops,
          .memory_speed = c.device.memory_speed * c.device.copies,
          .within = link(c.links.within),
          .between = link(c.links.between)};
}

double Measured::peak() const {
  return static_cast<double>(std::ranges::max_element(stages, {}, &RankMemory::peak)->peak);
}

Measured measured(const Model& model, const Setting& setting) {
  const GptOptions options = options_of(model, setting);
  const plan::Prediction prediction = plan::predict(options, program_of(options), machine(), 1, false);
  return {prediction.seconds, prediction.memory, plan::parts_text(prediction)};
}

Growth bytes_sent(const Model& model, const Setting& setting) {
  const GptOptions options = options_of(model, setting);
  const Trace trace = plan::record(options, program_of(options), machine()).traces.front();
  Growth bytes{};
  for (const Trace::Transfer& transfer : trace.transfers()) {
    const auto sent = static_cast<double>(transfer.bytes);
    if (transfer.kind == Trace::TransferKind::send) bytes.pp += sent;
    if (transfer.kind != Trace::TransferKind::collective) continue;
    const std::string& group = trace.groups()[at(transfer.group)].name;
    if (group.starts_with("tp")) bytes.tp += sent;
    if (group.starts_with("dp")) bytes.dp += sent;
  }
  return bytes;
}

std::vector<Setting> candidates(const Model& model, const Cluster& cluster, int batch, int zero) {
  std::vector<Setting> all;
  for (int tp = 1; tp <= std::min(cluster.devices, 16); tp *= 2)
    for (int pp = 1; tp * pp <= cluster.devices && whole(model.layers) % pp == 0; pp *= 2)
      for (const int micro_batch : {1, 2, 4})
        for (const bool recompute : {false, true}) {
          const int dp = cluster.devices / tp / pp;
          if (batch % (dp * micro_batch) != 0) continue;
          all.push_back({dp, tp, pp, micro_batch, batch / (dp * micro_batch), zero, recompute});
        }
  return all;
}

std::optional<double> fastest(const Model& model, const Cluster& cluster, int batch, int zero) {
  plan::Space space{
      .meshes = {}, .micro_batches = {1, 2, 4}, .zero = {zero}, .recompute = {"none", "full"}, .pipelines = {"1f1b"}};
  for (const Setting& s : candidates(model, cluster, batch, zero)) {
    const MeshShape mesh{{s.pp, s.dp, 1, s.tp, 1}};
    if (std::ranges::find(space.meshes, mesh) == space.meshes.end()) space.meshes.push_back(mesh);
  }
  GptOptions given = options_of(model, {.dp = cluster.devices, .zero = zero});
  given.batch = {.micro_batch = 1, .global_batch = batch};
  const DryProgram program = program_of(given);
  const auto ready = [&given](const TrainOptions& wanted) {
    GptOptions options = given;
    TrainOptions& training = options;  // the part that a search varies
    training = wanted;
    make_ready(options);
    return training;
  };
  const plan::Search found =
      plan::search(plan::combinations(given, space), ready, program, plan::model_facts(given, program), machine(),
                   {.memory = cluster.memory, .smallest = false});
  if (found.choices.empty()) return std::nullopt;
  return found.choices.front().prediction.seconds;
}

}  // namespace trireme::labs::planning
