// --profile FILE: some steps of a run, as a trace that chrome://tracing and https://ui.perfetto.dev show (ranks,
// phases, pipeline actions, modules, kernels, collectives), and as a table of kernels beside what the machine can do.
//
//   Profiling profiling(options, mesh);
//   while (...) {
//     profiling.before_step(made++);
//     ...                                                  // the step
//     profiling.after_step();                              // evaluation, samples and saving are not recorded
//   }
//   if (const auto table = profiling.finish()) ...       // on rank 0
//
// Steps are recorded after a few that warm caches and memory up. Read next: core/profile.h.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/machine_speed.h"
#include "core/profile.h"
#include "parallel/mesh/mesh.h"
#include "train/options/options.h"

namespace trireme {

class Profiling {
 public:
  static constexpr std::int64_t warm_up = 2;  ///< steps before the first that is recorded
  static constexpr std::string_view trace_beginning = "{\"displayTimeUnit\": ";  ///< of each trace, to tell one by

  /// Does nothing at all without --profile. The mesh must outlive this object. On the CPU it measures the machine.
  Profiling(const TrainOptions& options, const DeviceMesh& mesh);
  ~Profiling();
  Profiling(const Profiling&) = delete;
  Profiling& operator=(const Profiling&) = delete;

  /// `made`: steps that this run has made. Collective when recording begins or ends.
  void before_step(std::int64_t made);
  void after_step();
  /// After the last step: writes what is not yet written. Gives the table, on rank 0, or, of a run that had too few
  /// steps left, says that there is none. Collective.
  std::optional<std::string> finish();

 private:
  void start();
  void stop(std::int64_t steps);

  const DeviceMesh& mesh_;
  std::string path_;
  std::int64_t steps_;
  std::optional<MachineSpeed> machine_;
  std::shared_ptr<Profiler> profiler_;
  std::int64_t began_ = -1, made_ = 0;
  bool recorded_ = false;
  std::optional<std::string> table_;
};

/// One rank's events in Chrome's trace event format, comma after comma, without the array around them.
std::string trace_events(const std::vector<ProfileEvent>& events, int rank, const std::string& where);

/// Of one rank: kernels by name and shapes, longest first; `wall` seconds in all, over `steps` steps. Without a machine
/// the roofline is left out.
std::string kernel_table(const std::vector<ProfileEvent>& events, double wall, std::int64_t steps,
                         const std::optional<MachineSpeed>& machine);

}  // namespace trireme
