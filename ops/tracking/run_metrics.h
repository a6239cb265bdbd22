// RunMetrics: the state of a run, from its events, as a page in Prometheus' text format (version 0.0.4). All names
// begin with "trireme_"; docs/tracking.md lists them. Read next: ops/tracking/prometheus_sink.h, which serves the
// page.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "parallel/comm/watch/page.h"
#include "train/events/event.h"

namespace trireme {

class RunMetrics {
 public:
  /// `now`: seconds since 1970.
  void apply(const Event& event, double now);
  /// Values that are not known yet are left out. `pages`, if not null: what the ranks of this machine show of
  /// themselves.
  std::string page(const watch::RankPages* pages = nullptr) const;

 private:
  void apply(const RunBegan& run);

  std::vector<LabelledValue> labels_;  // what does not change during this start
  std::optional<std::int64_t> world_size_;
  std::int64_t last_step_ = 0;  // --steps
  std::optional<std::int64_t> step_;
  double step_time_ = 0;  // when it was made
  std::int64_t steps_made_ = 0;
  double seconds_stepping_ = 0;
  std::optional<StepRecord> record_;  // the newest
  std::optional<double> validation_loss_;
  std::optional<std::int64_t> saved_step_;
  double saved_time_ = 0;
  std::int64_t rollbacks_ = 0, warnings_ = 0;
  bool ended_ = false;
};

}  // namespace trireme
