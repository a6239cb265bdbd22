#include "ops/tracking/prometheus_sink.h"
#include "ops/tracking/tensorboard_sink.h"

namespace trireme {

Trackers all_trackers() {
  Trackers trackers;
  trackers.push_back(std::make_unique<TensorboardTracker>());
  trackers.push_back(std::make_unique<PrometheusTracker>());
  return trackers;
}

void declare_trackers(Flags& flags, const Trackers& trackers) {
  flags.group("tracking");
  for (const std::unique_ptr<Tracker>& tracker : trackers) tracker->declare(flags);
}

}  // namespace trireme
