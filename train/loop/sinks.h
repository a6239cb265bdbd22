// The sinks of a run's events, chosen by its options. To add one: write an EventSink and add a line to sinks.cpp.
// Read next: train/events/event_stream.h.
#pragma once

#include <memory>

#include "train/events/event_stream.h"
#include "train/options/options.h"
#include "train/runs/run_folder.h"
#include "train/tracking/prometheus_sink.h"

namespace trireme {

/// What sinks need before the data is loaded and ranks start, because it may be refused.
struct SinkResources {
  std::unique_ptr<PrometheusSink> prometheus;  ///< on the first rank's process, if --prometheus is given

  /// Throws ExitCode::usage if the port of --prometheus cannot be had.
  static SinkResources acquire(const TrainOptions& options);
};

/// Adds every sink that the options ask for. Call on the first rank only. `eval_every`: steps between evaluations, 0 if
/// there are none during training. `folder` must outlive `events`.
void add_sinks(EventStream& events, const TrainOptions& options, std::int64_t eval_every, RunFolder& folder,
               SinkResources& resources);

}  // namespace trireme
