// The tables before and after a run: what will be trained, and where the time went.
// Read next: train/report/report.cpp; ops/terminal/terminal_sink.h prints them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "train/events/event.h"
#include "train/options/options.h"
#include "train/program/timer.h"
#include "train/program/units.h"

namespace trireme {

/// Two columns, the labels padded to one width. A value of several lines continues in its column. Values are wrapped at
/// words so that all fits into `columns`; 0: they are not wrapped. In a narrow window a label has a line of its own.
std::string aligned_lines(const std::vector<LabelledValue>& rows, int columns = 0);

/// Facts for the start table that are not in the options.
struct StartFacts {
  std::vector<LabelledValue> task;  ///< the model and its data
  std::string batch;                ///< how the samples of a step are divided
  pipeline::StagePlan plan;         ///< the blocks of each stage
  std::string gpu_kernels{};        ///< Task::gpu_kernels()
  std::string traffic{};            ///< Rank::traffic
  SumOrder sums = SumOrder::ranks;  ///< ProcessGroup::fastest_order() of the world
  int threads = 1;                  ///< per rank
  bool own_cores = false;           ///< threads are pinned to cores of their own
  double bubble = 0;                ///< idle fraction of a step in the pipeline schedule
  std::string memory;               ///< predicted, per rank
  std::int64_t eval_every = 0;      ///< steps between validation losses during training; 0: there are none
};

/// What will be trained: device, precision, data and model, mesh, schedule, memory.
RunPlanned plan_of_run(const TrainOptions& options, const StartFacts& facts);

/// The message for a step whose update loss scaling skipped.
std::string skipped_line(std::int64_t step, const optim::LossScaler& scaler);

/// The ranks of every group along an axis: "[0 1] [2 3]". Of many groups, only the first few.
std::string axis_groups(const MeshShape& mesh, Axis axis);

/// Predicted beside measured, a line each; empty without rows.
std::string memory_table(const std::vector<MemoryRow>& rows);

/// Seconds, share and time per step of each phase, and the time outside all phases. Columns that do not fit into
/// `columns` are left out; 0: any width.
std::string time_table(const PhaseSeconds& totals, double wall_seconds, std::int64_t steps, int columns = 0);

}  // namespace trireme
