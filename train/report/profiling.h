// --profile FILE: records some steps of a run, as a trace for `view`, chrome://tracing and https://ui.perfetto.dev
// (ranks, phases, pipeline actions, modules, kernels, collectives, messages, memory), and as a table that compares
// kernels with the machine's limits.
//
//   Profiling profiling(options, mesh);
//   profiling.describe(parameters, first_step);
//   while (...) {
//     profiling.before_step(made++);
//     ...                                                  // the step
//     profiling.after_step();                              // evaluation, samples and saving are not recorded
//   }
//   if (const auto table = profiling.finish()) ...       // on rank 0
//
// Recording starts after a few warm-up steps. On a GPU the table ends with what the rank asked of it in a step.
// Read next: core/profile.h.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/device.h"
#include "core/device_work.h"
#include "core/machine_speed.h"
#include "core/profile.h"
#include "parallel/mesh/mesh.h"
#include "parallel/parameters/parameter.h"
#include "train/options/options.h"

namespace trireme {

/// Profiles some steps of a run, and writes the reports.
class Profiling {
 public:
  static constexpr std::int64_t warm_up = 2;  ///< steps before the first recorded one
  static constexpr std::string_view trace_beginning = "{\"displayTimeUnit\": ";  ///< how every trace begins; used to
                                                                                 ///< recognise one

  /// Does nothing without --profile. The mesh must outlive this object. On the CPU, measures the machine's speed.
  Profiling(const TrainOptions& options, const DeviceMesh& mesh);
  ~Profiling();
  Profiling(const Profiling&) = delete;
  Profiling& operator=(const Profiling&) = delete;

  /// What the trace says of the model's weights and of the steps' numbers. `first_step`: steps made before this start.
  void describe(ParameterList parameters, std::int64_t first_step);
  /// `made`: steps that this run has made. Collective if recording begins or ends.
  void before_step(std::int64_t made);
  /// Call after each step: starts or ends the profile.
  void after_step();
  /// After the last step: writes a trace that is not written yet. Returns the table on rank 0, or a message if there
  /// were too few steps to record. Collective.
  std::optional<std::string> finish();

 private:
  void start();
  void stop(std::int64_t steps);
  std::string facts() const;

  const DeviceMesh& mesh_;
  const TrainOptions& options_;
  std::string path_;
  std::int64_t steps_;
  ParameterList parameters_;
  std::int64_t first_step_ = 0;
  std::optional<MachineSpeed> machine_;
  std::shared_ptr<Profiler> profiler_;
  Profiler::Clock::time_point step_began_{};
  Device device_;
  DeviceWork before_, work_;  // of this rank: when recording went on, and of the recorded steps
  std::int64_t began_ = -1, made_ = 0;
  bool recorded_ = false;
  std::optional<std::string> table_;
};

/// What one rank recorded.
struct RankTrace {
  int rank = 0;
  std::string where, host;  ///< "rank 3 (dp=1,tp=1,pp=0)", and the name of its machine
  std::vector<ProfileEvent> events;
  std::vector<MemorySample> memory = {};
};

/// In Chrome's trace event format: events separated by commas, without the enclosing array.
std::string trace_events(const RankTrace& trace);

/// The kernels of one rank by name and shapes, longest first. `wall`: total seconds of `steps` steps. Without
/// `machine`, the roofline column is omitted. In a window of `columns` the rates, and then the roofline column, are
/// omitted, and names are cut; 0: any width.
std::string kernel_table(const std::vector<ProfileEvent>& events, double wall, std::int64_t steps,
                         const std::optional<MachineSpeed>& machine, int columns = 0);

/// "per step: 1,234 launches, 56 copies, 789 allocations on the device; waits for the device: 1"
std::string device_work_line(const DeviceWork& work, std::int64_t steps);

}  // namespace trireme
