#include "train/report/report.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/cpu/processor.h"
#include "train/program/text_width.h"

namespace trireme {
namespace {

std::string mesh_row(const MeshOptions& options) {
  const MeshShape& mesh = options.shape;
  std::string text = fmt::format("{} = {} rank{}", to_string(mesh), mesh.ranks(), mesh.ranks() == 1 ? "" : "s");
  if (mesh.size(Axis::tp) > 1)
    text += fmt::format(", sequence parallelism {}", options.parallelism().sequence ? "on" : "off");
  return text;
}

std::string groups_row(const MeshShape& mesh) {
  std::string text;
  for (const Axis axis : {Axis::tp, Axis::cp, Axis::ep, Axis::dp, Axis::pp})
    if (mesh.size(axis) > 1)
      text += fmt::format("{}{} {}", text.empty() ? "" : "\n", name(axis), axis_groups(mesh, axis));
  return text;
}

std::string pipeline_row(const TrainOptions& o, const StartFacts& facts) {
  const std::int64_t micro_batches = o.batch_sizes().micro_batches;
  const int stages = o.mesh.stages(), ranks = o.mesh.shape.size(Axis::pp);
  if (stages == 1)
    return fmt::format("one stage; {} micro-batch{} per step", micro_batches, micro_batches == 1 ? "" : "es");
  std::string layers;
  for (const pipeline::BlockRange& range : facts.plan)
    layers += fmt::format("{}{}", layers.empty() ? "" : ",", range.count);
  return fmt::format("{}, {} stages{} of {} layers, {} micro-batches: bubble {:.1f}% of a step", o.mesh.pipeline,
                     stages, stages == ranks ? "" : fmt::format(" on {} rank{}", ranks, ranks == 1 ? "" : "s"), layers,
                     micro_batches, facts.bubble * 100);
}

std::string learning_rate_row(const ScheduleOptions& s) {
  std::string text = fmt::format("{:.3g}", s.lr);
  if (s.warmup_steps > 0) text += fmt::format(" after {} steps of warm-up", s.warmup_steps);
  if (s.lr_schedule == optim::LrShape::constant) return text + ", constant";
  if (s.lr_schedule == optim::LrShape::wsd)
    return text +
           fmt::format(", falling to {:.3g} in the last {} steps", s.final_lr(), s.decay_end() - s.decay_begin());
  return text + fmt::format(", {} to {:.3g} at step {}", name(s.lr_schedule), s.final_lr(), s.decay_end());
}

std::string device_row(const TrainOptions& o, const StartFacts& facts) {
  return fmt::format("{}, {} thread{} per rank{}, ranks are {}", o.precision.device, facts.threads,
                     facts.threads == 1 ? "" : "s", facts.own_cores ? " on cores of their own" : "",
                     o.mesh.processes ? "MPI processes" : "threads");
}

std::string kernels_row(const PrecisionOptions& p, const StartFacts& facts) {
  if (p.tensor_device() != Device::cpu) return facts.gpu_kernels;
  const bool unit = p.dtype == DType::bf16 && p.gemm == "trireme";
  return fmt::format("products: {}{}", p.gemm, unit ? fmt::format(" ({})", cpu::name(cpu::bf16_unit())) : "");
}

std::vector<LabelledValue> details(const TrainOptions& o, const StartFacts& facts) {
  const MeshShape& mesh = o.mesh.shape;
  std::vector<LabelledValue> rows = {{"kernels", kernels_row(o.precision, facts)}};
  if (mesh.ranks() > 1) rows.emplace_back("groups", groups_row(mesh));
  if (o.mesh.processes && mesh.ranks() > 1)
    rows.emplace_back("reduction", facts.sums == SumOrder::any ? "fast" : "exact");
  if (!facts.traffic.empty()) rows.emplace_back("traffic", "tensors go between ranks " + facts.traffic);
  return rows;
}

std::string out_row(const RunOptions& o) {
  if (o.out.empty()) return "nothing is kept: --out none";
  std::string when = "after the last step";
  if (o.checkpoint_minutes > 0) when = fmt::format("every {:g} minutes, and {}", o.checkpoint_minutes, when);
  if (o.checkpoint_every > 0)
    when = fmt::format("every {} step{}, {}{}", o.checkpoint_every, o.checkpoint_every == 1 ? "" : "s",
                       o.checkpoint_minutes > 0 ? "" : "and ", when);
  return fmt::format("{}; checkpoints {}, or when a signal asks for one", o.out, when);
}

std::string optimizer_row(const OptimizerOptions& o) {
  const std::string clip = o.clip > 0 ? fmt::format("gradient norm at most {}", o.clip) : "no clipping";
  if (o.optimizer == "sgd")
    return fmt::format("sgd, momentum {}, weight decay {}, {}", o.momentum, o.weight_decay, clip);
  return fmt::format("adamw, beta {} and {}, eps {}, weight decay {}, {}", o.beta1, o.beta2, o.eps, o.weight_decay,
                     clip);
}

}  // namespace

std::string aligned_lines(const std::vector<LabelledValue>& rows, int columns) {
  constexpr int narrowest_value = 20, unlimited = std::numeric_limits<int>::max();
  int width = 0;
  for (const LabelledValue& row : rows) width = std::max(width, columns_of(row.first));
  std::string text;
  for (const auto& [label, value] : rows) {
    std::string_view first = label;  // stands before the first line only
    for (const std::string& line :
         wrapped_lines(value, columns > 0 ? std::max(columns - width - 2, narrowest_value) : unlimited)) {
      text += fmt::format("{}  {}\n", padded_to_columns(first, width), line);
      first = "";
    }
  }
  return text;
}

RunPlanned plan_of_run(const TrainOptions& o, const StartFacts& facts) {
  const PrecisionOptions& p = o.precision;
  const bool f32 = p.dtype == DType::f32;
  RunPlanned plan;
  std::vector<LabelledValue>& rows = plan.rows;
  rows = {{"device", device_row(o, facts)},
          {"precision", f32 ? "f32" : fmt::format("{}, gradients and master weights in f32", name(p.dtype))}};
  rows.insert(rows.end(), facts.task.begin(), facts.task.end());
  const std::vector<LabelledValue> others = {{"mesh", mesh_row(o.mesh)},
                                             {"schedule", pipeline_row(o, facts)},
                                             {"optimizer", optimizer_row(o.optimizer)},
                                             {"learning rate", learning_rate_row(o.schedule)},
                                             {"memory per rank", facts.memory},
                                             {"batch", facts.batch},
                                             {"kept in", out_row(o.run)}};
  rows.insert(rows.end(), others.begin(), others.end());
  plan.details = details(o, facts);
  return plan;
}

std::string skipped_line(std::int64_t step, const optim::LossScaler& scaler) {
  return fmt::format("step {} skipped: its gradients overflowed in f16; the loss scale is {:g} now, {} skipped so far",
                     step, scaler.scale(), scaler.skipped());
}

std::string axis_groups(const MeshShape& mesh, Axis axis) {
  constexpr int shown = 8;
  // The world rank is (pp * DATA + data) * TP + tp: each axis is a digit. Ranks of one group are `stride` apart.
  const int size = mesh.size(axis), groups = mesh.ranks() / size;
  int stride = axis == Axis::tp ? 1 : mesh.size(Axis::tp);
  if (axis == Axis::dp) stride *= mesh.size(Axis::cp);
  if (axis == Axis::edp) stride *= mesh.size(Axis::ep);
  if (axis == Axis::pp) stride *= mesh.size(Axis::data);
  std::string text;
  for (int group = 0; group < std::min(groups, shown); ++group) {
    const int first = group / stride * stride * size + group % stride;
    text += text.empty() ? "[" : " [";
    for (int member = 0; member < std::min(size, shown); ++member)
      text += fmt::format("{}{}", member > 0 ? " " : "", first + member * stride);
    text += size > shown ? fmt::format(" ... {}]", first + (size - 1) * stride) : "]";
  }
  return groups > shown ? text + fmt::format(" ... ({} groups)", groups) : text;
}

std::string time_table(const PhaseSeconds& totals, double wall_seconds, std::int64_t steps) {
  const double wall = std::max(wall_seconds, 1e-9);
  std::string text =
      fmt::format("{:<26} {:>10} {:>7} {:>12}\n", "where the time went", "seconds", "share", "ms per step");
  const auto row = [&](std::string_view label, double seconds, bool per_step) {
    text += fmt::format("{:<26} {:>10.2f} {:>6.1f}%", label, seconds, 100 * seconds / wall);
    text += per_step && steps > 0 ? fmt::format(" {:>12.2f}\n", seconds * 1e3 / static_cast<double>(steps)) : "\n";
  };
  double claimed = 0;
  for (std::size_t i = 0; i < totals.size(); ++i) {
    claimed += totals[i];
    if (totals[i] > 0) row(name(static_cast<Phase>(i)), totals[i], in_step(static_cast<Phase>(i)));
  }
  row("everything else", std::max(0.0, wall_seconds - claimed), false);
  row("total", wall_seconds, false);
  return text;
}

}  // namespace trireme
