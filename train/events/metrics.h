// One line of metrics.jsonl: the values of a logged step, for programs to read.
// Read next: train/runs/run_folder.h, which appends the lines to the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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
  std::optional<double> loss_scale;                    ///< for the next step
  std::optional<std::int64_t> peak_bytes;              ///< peak of tensor memory on the rank that writes
  std::vector<std::pair<std::string, double>> epochs;  ///< Task::epochs()

  /// Sets the times and the token rate from a lap of steps of `tokens_per_step` each.
  void set_times(const PhaseTimes::Lap& lap, std::int64_t tokens_per_step);
  void set_routing(const nn::RoutingReport& report, const nn::ExpertsOptions& experts);
  /// Sets comm_ms and comm_exposed_ms from the sums over `steps` steps.
  void set_communication(const CommunicationTimes& sums, std::int64_t steps);
};

/// Calls use(key, value) for every value that is set, except epochs, in the order of a line of metrics.jsonl. A value
/// is an std::int64_t or a double.
template <class F>
void for_each_value(const StepRecord& r, const F& use) {
  const auto use_if_set = [&use](const char* key, const auto& value) {
    if (value) use(key, *value);
  };
  use("step", r.step);
  use("loss", r.loss);
  use("lr", r.lr);
  use("grad_norm", r.grad_norm);
  use("tokens", r.tokens);
  use("tokens_per_s", r.tokens_per_s);
  use("step_ms", r.step_ms);
  use_if_set("val_loss", r.val_loss);
  use_if_set("skipped", r.skipped);
  use_if_set("loss_scale", r.loss_scale);
  use_if_set("aux_loss", r.aux_loss);
  use_if_set("z_loss", r.z_loss);
  use_if_set("expert_imbalance", r.expert_imbalance);
  use_if_set("forward_ms", r.forward_ms);
  use_if_set("backward_ms", r.backward_ms);
  use_if_set("optimizer_ms", r.optimizer_ms);
  use_if_set("data_ms", r.data_ms);
  use_if_set("comm_ms", r.comm_ms);
  use_if_set("comm_exposed_ms", r.comm_exposed_ms);
  use_if_set("peak_bytes", r.peak_bytes);
}

/// One JSON object without a newline. Floating-point numbers have enough digits to read back the same value. NaN and
/// infinity are written as null.
std::string to_json_line(const StepRecord& record);

/// The lines of a metrics.jsonl whose step is at most `steps`.
std::string first_steps(const std::string& lines, std::int64_t steps);

}  // namespace trireme
