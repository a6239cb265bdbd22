#include "train/report/report.h"
#include "train/options/optimizer_kinds.h"

#include <fmt/format.h>

#include <algorithm>
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
  return fmt::format("{}, {} stages{} of {} layers, {} micro-batch{}: bubble {:.1f}% of a step", o.mesh.pipeline,
                     stages, stages == ranks ? "" : fmt::format(" on {} rank{}", ranks, ranks == 1 ? "" : "s"), layers,
                     micro_batches, micro_batches == 1 ? "" : "es", facts.bubble * 100);
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
  if (o.mesh.collectives != comm::Algorithm::exact || !o.mesh.links.empty())
    rows.emplace_back("collectives", fmt::format("{}{}", comm::name(o.mesh.collectives),
                                                 o.mesh.links.empty() ? "" : " over the links of " + o.mesh.links));
  if (!facts.traffic.empty()) rows.emplace_back("traffic", "tensors go between ranks " + facts.traffic);
  return rows;
}

/// When checkpoints are saved, and which of them stay.
std::string checkpoints_row(const RunOptions& o, std::int64_t eval_every) {
  std::vector<std::string> when;
  if (o.checkpoint_every > 0) when.push_back(fmt::format("every {} steps", o.checkpoint_every));
  if (o.checkpoint_minutes > 0) when.push_back(fmt::format("every {:g} minutes", o.checkpoint_minutes));
  when.emplace_back("after the last step");
  when.emplace_back("on a signal");
  const bool best = o.keep_best && eval_every > 0;
  if (best) when.push_back(fmt::format("at each new lowest validation loss (computed every {} steps)", eval_every));
  const std::string last = when.back();
  when.pop_back();
  std::string text = fmt::format("{}, and {}", fmt::join(when, ", "), last);
  if (o.keep) return text + fmt::format("; the newest {}{} stay", *o.keep, best ? " and the best" : "");
  return text + (best ? "; of the latter only the best stays" : "; all stay");
}

std::string optimizer_row(const OptimizerOptions& o, double lr) {
  return fmt::format("{}{} weight decay {}, {}", kind_of(o).row(o, lr), o.optimizer == "muon" ? ";" : ",",
                     o.weight_decay, o.clip > 0 ? fmt::format("gradient norm at most {}", o.clip) : "no clipping");
}

}  // namespace

std::string aligned_lines(const std::vector<LabelledValue>& rows, int columns) {
  constexpr int narrowest = 50, unlimited = std::numeric_limits<int>::max();
  const bool stacked = columns > 0 && columns < narrowest;
  int width = 0;
  for (const LabelledValue& row : rows) width = std::max(width, columns_of(row.first));
  if (stacked) width = 0;
  std::string text;
  for (const auto& [label, value] : rows) {
    if (stacked) text += std::string(cut_to_columns(label, columns)) + "\n";
    std::string_view first = stacked ? "" : std::string_view(label);  // stands before the first line only
    for (const std::string& line : wrapped_lines(value, columns > 0 ? std::max(columns - width - 2, 1) : unlimited)) {
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
  const std::vector<LabelledValue> others = {
      {"mesh", mesh_row(o.mesh)},
      {"schedule", pipeline_row(o, facts)},
      {"optimizer", optimizer_row(o.optimizer, o.schedule.lr)},
      {"learning rate", learning_rate_row(o.schedule)},
      {"memory per rank", facts.memory},
      {"batch", facts.batch},
  };
  rows.insert(rows.end(), others.begin(), others.end());
  if (!o.run.dry_run) rows.emplace_back("kept in", o.run.out.empty() ? "nothing is kept: --out none" : o.run.out);
  if (!o.run.out.empty()) rows.emplace_back("checkpoints", checkpoints_row(o.run, facts.eval_every));
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

std::string time_table(const PhaseSeconds& totals, double wall_seconds, std::int64_t steps, int columns) {
  const double wall = std::max(wall_seconds, 1e-9);
  const auto fits = [columns](int width) { return columns == 0 || width <= columns; };
  const bool with_share = fits(38), with_steps = fits(58);
  const int label_width = with_steps ? 26 : 19;
  const auto line = [&](std::string_view label, const std::string& seconds, const std::string& share,
                        const std::string& per_step) {
    std::string text = fmt::format("{:<{}} {:>10}", shortened_to_columns(label, label_width), label_width, seconds);
    if (with_share) text += fmt::format(" {:>7}", share);
    if (with_steps && !per_step.empty()) text += fmt::format(" {:>12}", per_step);
    return text + "\n";
  };
  std::string text = line("where the time went", "seconds", "share", "ms per step");
  const auto row = [&](std::string_view label, double seconds, bool per_step) {
    text += line(label, fmt::format("{:.2f}", seconds), fmt::format("{:.1f}%", 100 * seconds / wall),
                 per_step && steps > 0 ? fmt::format("{:.2f}", seconds * 1e3 / static_cast<double>(steps)) : "");
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

std::string memory_table(const std::vector<MemoryRow>& rows) {
  if (rows.empty()) return "";
  const auto line = [](std::string_view what, const std::string& predicted, const std::string& measured) {
    return fmt::format("{:<26} {:>10} {:>10}\n", what, predicted, measured);
  };
  std::string text = line("most memory of rank 0", "predicted", "measured");
  for (const MemoryRow& row : rows)
    text += line(row.what, format_bytes(static_cast<double>(row.predicted)),
                 format_bytes(static_cast<double>(row.measured)));
  return text;
}

}  // namespace trireme
