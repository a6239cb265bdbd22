// One line of metrics.jsonl: what a logged step was, for programs to read.
// Read next: train/runs/run_folder.h, which appends the lines to the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "nn/experts_options.h"
#include "nn/routing.h"
#include "parallel/comm/times.h"
#include "train/program/timer.h"

namespace trireme {

struct StepRecord {
  std::int64_t step = 0;  ///< 1 for the first
  double loss = 0;        ///< mean over all tokens of the step's global batch, before the update
  double lr = 0;
  double grad_norm = 0;     ///< of the whole gradient, before clipping
  std::int64_t tokens = 0;  ///< seen since the start of the run, this step's included
  double tokens_per_s = 0;  ///< mean since the line before
  double step_ms = 0;       ///< mean since the line before
  std::optional<double> val_loss;
  std::optional<double> forward_ms, backward_ms, optimizer_ms, data_ms;
  /// Communication (parallel/comm/times.h), mean since the line before: under way, and of that, what was waited for.
  std::optional<double> comm_ms, comm_exposed_ms;
  std::optional<std::int64_t> skipped;  ///< steps since the start of the run whose gradients overflowed in f16
  /// Of the step's routers (nn::RoutingReport), with experts and where the loss has a weight.
  std::optional<double> aux_loss, z_loss, expert_imbalance;
  std::optional<double> loss_scale;        ///< that of the next step
  std::optional<std::int64_t> peak_bytes;  ///< most tensor memory in use at once, on the rank that writes

  /// Sets the times and the rate from a lap of steps of `tokens_per_step` each.
  void set_times(const PhaseTimes::Lap& lap, std::int64_t tokens_per_step);
  void set_routing(const nn::RoutingReport& report, const nn::ExpertsOptions& experts);
  /// Sets comm_ms and comm_exposed_ms from the sums over `steps` steps.
  void set_communication(const CommunicationTimes& sums, std::int64_t steps);
};

/// One JSON object without a newline. Floating-point numbers have as many digits as it takes to read the same value
/// back; what is not finite is null.
std::string to_json_line(const StepRecord& record);

/// The lines of a metrics.jsonl that are of the first `steps` steps.
std::string first_steps(const std::string& lines, std::int64_t steps);

}  // namespace trireme
