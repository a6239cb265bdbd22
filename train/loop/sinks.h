// The sinks of a run's events, chosen by its options. To add one: write an EventSink and add a line to sinks.cpp.
// Read next: train/events/event_stream.h.
#pragma once

#include "train/events/event_stream.h"
#include "train/options/options.h"
#include "train/runs/run_folder.h"

namespace trireme {

/// Adds every sink that the options ask for. Call on the first rank only. `folder` must outlive `events`.
void add_sinks(EventStream& events, const TrainOptions& options, RunFolder& folder);

}  // namespace trireme
