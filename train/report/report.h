// The tables around a run: what is about to be trained, and where the time went.
// Read next: train/report/report.cpp; train/program/console.h prints them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "train/options/options.h"
#include "train/program/timer.h"

namespace trireme {

using Row = std::pair<std::string, std::string>;  ///< label, value

/// Two columns, the labels padded to one width. A value of several lines continues in its column.
std::string table(const std::vector<Row>& rows);

/// What the options do not say.
struct StartFacts {
  std::vector<Row> task;      ///< the model and its data
  pipeline::StagePlan plan;   ///< the blocks of each stage
  std::string gpu_kernels{};  ///< Task::gpu_kernels()
  std::string traffic{};      ///< Rank::traffic
  int threads = 1;            ///< per rank
  bool own_cores = false;     ///< they keep to
  double bubble = 0;          ///< part of a step that a stage spends idle, of the pipeline schedule in use
  std::string memory;         ///< predicted, per rank
};

/// "1,234,567".
std::string thousands(std::int64_t n);

/// Device, precision, data and model, mesh, schedule, memory: the table before training.
std::string start_table(const TrainOptions& options, const StartFacts& facts);

/// What to say when loss scaling skipped the update of a step.
std::string skipped_line(std::int64_t step, const optim::LossScaler& scaler);

/// The ranks of every group along an axis: "[0 1] [2 3]"; of many groups the first few.
std::string axis_groups(const MeshShape& mesh, Axis axis);

/// Seconds, share and time per step of each phase, and what no phase claimed.
std::string time_table(const PhaseTimes& times, std::int64_t steps);
std::string time_table(const PhaseSeconds& totals, double wall_seconds, std::int64_t steps);

}  // namespace trireme
