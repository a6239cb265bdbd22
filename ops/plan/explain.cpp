#include "ops/plan/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include "ops/plan/cluster.h"
#include "parallel/pipeline/schedules.h"
#include "train/program/units.h"

namespace trireme::plan {
namespace {

struct Line {
  std::string what, value, why;
};

/// Why a part of the step that is not arithmetic takes time.
std::string why(const std::string& part, const TrainOptions& options) {
  static const std::map<std::string, std::string_view, std::less<>> reasons = {
      {"elementwise", "norms, activations and the loss: the memory's speed decides, not arithmetic"},
      {"copies", "buckets, gradients and casts: each byte is read and written"},
      {"optimizer", "reads and writes weights, gradients and moments once"},
      {"tp", "waits for sums over tp, twice in a block and direction, which nothing hides"},
      {"cp", "waits for keys and values of other parts of the sequence"},
      {"first and last stage", "waits for the other end of the pipeline, to add up the tied embedding's gradients"},
      {"ep", "waits for tokens on their way to experts and back"},
      {"waiting for the last rank", "it ends its step later than this one, which computes more"},
      {"edp", "waits for gradients or weights of experts, as far as computing does not hide them"},
      {"data", "waits for gradients or weights, as far as computing does not hide them"},
      {"dp", "waits for gradients or weights, as far as computing does not hide them"}};
  if (part == "pp") {
    const int stages = options.mesh.shape.size(Axis::pp), chunks = pipeline::chunks_per_rank(options.mesh.pipeline);
    const auto micro_batches = static_cast<double>(options.batch_sizes().micro_batches);
    return fmt::format(
        "waits for other stages: while the pipeline fills and drains, ({} - 1) / ({:.0f} x {}) = {:.2g} % of a stage's "
        "work with 1F1B; and for stages that take longer",
        stages, micro_batches, chunks, 100 * (stages - 1) / (micro_batches * chunks));
  }
  const auto found = reasons.find(part);
  return found == reasons.end() ? "" : std::string(found->second);
}

/// Seconds of products and attention: of all stages, divided by their number.
double mean_arithmetic(const std::vector<RankTime>& ranks) {
  double sum = 0;
  for (const RankTime& rank : ranks)
    for (const auto& [kernel, seconds] : rank.kernels)
      if (kernel_kind(kernel) == KernelKind::product || kernel_kind(kernel) == KernelKind::attention) sum += seconds;
  return sum / static_cast<double>(ranks.size());
}

std::string aligned(const std::vector<Line>& lines) {
  std::size_t wide = 0, values = 0;
  for (const Line& line : lines) {
    wide = std::max(wide, line.what.size());
    values = std::max(values, line.value.size());
  }
  std::string text;
  for (const Line& line : lines)
    text += fmt::format("  {:<{}}  {:>{}}{}{}\n", line.what, wide, line.value, values, line.why.empty() ? "" : "  ",
                        line.why);
  return text;
}

}  // namespace

std::string explain(const Question& question, const Choice& choice) {
  const Prediction& p = choice.prediction;
  const Cluster::DeviceFigures& device = question.cluster.device;
  const double peak = choice.options.precision.dtype == DType::f32 ? device.f32_flops : device.bf16_flops;
  const auto devices = static_cast<double>(choice.options.mesh.shape.ranks());
  const auto samples = static_cast<double>(choice.options.batch_sizes().global_batch);
  const auto targets = static_cast<double>(question.targets);
  const double model = question.model.flops * samples, ideal = model / (devices * peak);
  const double again = std::max(0.0, p.flops / (devices * peak) - ideal);
  const auto seconds = [](double s) { return fmt::format("{:.4g} s", s); };
  const auto more = [](double s) { return fmt::format("{:+.4g} s", s); };

  std::vector<Line> lines = {
      {"a sample", format_count(question.model.flops) + "FLOP",
       fmt::format("of {} targets, each with 2 FLOPs a weight forward and 4 backward; and attention",
                   thousands(question.targets))},
      {"a step", format_count(model) + "FLOP", fmt::format("{:.0f} samples", samples)},
      {"at the peak", seconds(ideal), fmt::format("{:.0f} devices x {}FLOP/s", devices, format_count(peak))},
  };
  if (again > 1e-3 * ideal) lines.push_back({"recomputing", more(again), "what backward computes a second time"});
  double arithmetic = 0;
  std::vector<Line> others;
  for (const auto& [part, time] : parts(p)) {
    if (part == "products" || part == "attention")
      arithmetic += time;
    else
      others.push_back({part, more(time), why(part, choice.options)});
  }
  const double mean = mean_arithmetic(p.ranks);
  lines.push_back({"below the peak", more(mean - ideal - again),
                   fmt::format("products and attention reach {:.0f} % of it", 100 * (ideal + again) / mean)});
  if (p.ranks.size() > 1)
    lines.push_back({"imbalance", more(arithmetic - mean),
                     "how much more arithmetic the rank has than the mean of all; with less, it waits longer instead"});
  lines.insert(lines.end(), others.begin(), others.end());
  const double step = p.seconds;
  lines.push_back({"a step takes", seconds(step), ""});
  lines.push_back({"so", format_count(samples * targets / step) + " " + question.per_second,
                   fmt::format("{:.0f} x {} / {:.4g} s", samples, thousands(question.targets), step)});
  lines.push_back(
      {"MFU", fmt::format("{:.1f} %", 100 * ideal / step), fmt::format("{:.4g} s / {:.4g} s", ideal, step)});
  return fmt::format("\n{}\n", settings_text(choice.options)) + aligned(lines);
}

}  // namespace trireme::plan
