// One line of metrics.jsonl: the values of a logged step, for programs to read.
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
  std::int64_t tokens = 0;  ///< since the start of the run, including this step
  double tokens_per_s = 0;  ///< mean since the previous line
  double step_ms = 0;       ///< mean since the previous line
  std::optional<double> val_loss;
  std::optional<double> forward_ms, backward_ms, optimizer_ms, data_ms;
  /// Communication (parallel/comm/times.h), mean since the previous line: in flight, and the part that the rank waited
  /// for.
  std::optional<double> comm_ms, comm_exposed_ms;
  std::optional<std::int64_t> skipped;  ///< steps skipped because of f16 overflow, since the start of the run
  /// From the routers of this step (nn::RoutingReport), for models with experts. A loss is set only if its weight is
  /// not 0.
  std::optional<double> aux_loss, z_loss, expert_imbalance;
  std::optional<double> loss_scale;        ///< for the next step
  std::optional<std::int64_t> peak_bytes;  ///< peak of tensor memory on the rank that writes

  /// Sets the times and the token rate from a lap of steps of `tokens_per_step` each.
  void set_times(const PhaseTimes::Lap& lap, std::int64_t tokens_per_step);
  void set_routing(const nn::RoutingReport& report, const nn::ExpertsOptions& experts);
  /// Sets comm_ms and comm_exposed_ms from the sums over `steps` steps.
  void set_communication(const CommunicationTimes& sums, std::int64_t steps);
};

/// One JSON object without a newline. Floating-point numbers have enough digits to read back the same value. NaN and
/// infinity are written as null.
std::string to_json_line(const StepRecord& record);

/// The lines of a metrics.jsonl whose step is at most `steps`.
std::string first_steps(const std::string& lines, std::int64_t steps);

}  // namespace trireme
