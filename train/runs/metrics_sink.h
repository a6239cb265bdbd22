// MetricsSink: keeps the logged steps of a run in the metrics.jsonl of its folder.
// Read next: train/runs/run_folder.h, train/events/metrics.h.
#pragma once

#include <cmath>
#include <optional>
#include <utility>

#include "train/events/event_stream.h"
#include "train/runs/run_folder.h"

namespace trireme {

class MetricsSink : public EventSink {
 public:
  /// `folder` must outlive this object. Events before it is open are dropped.
  explicit MetricsSink(RunFolder& folder) : folder_(folder) {}

  /// Writes the lines of an event.
  void receive(const Event& event) override {
    std::visit(Match{[this](const StepLogged& logged) { log(logged); },
                     [this](const Validated& validated) { complete(validated); },
                     // A signal has cut the evaluation short: the step is logged without its validation loss.
                     [this](const RunEnded&) { log_waiting(); },
                     [this](const RolledBack& rolled) { folder_.rewind(rolled.step); }, [](const auto&) {}},
               event);
  }

 private:
  void log(const StepLogged& logged) {
    if (logged.evaluated)
      waiting_ = logged.record;
    else
      folder_.log(logged.record);
  }
  void log_waiting() {
    if (const std::optional<StepRecord> record = std::exchange(waiting_, std::nullopt)) folder_.log(*record);
  }
  /// A validation loss that is not finite ends the run with an error, and its step leaves no line.
  void complete(const Validated& validated) {
    std::optional<StepRecord> record = std::exchange(waiting_, std::nullopt);
    if (!record || !std::isfinite(validated.loss)) return;
    record->val_loss = validated.loss;
    folder_.log(*record);
  }

  RunFolder& folder_;
  std::optional<StepRecord> waiting_;  // for its validation loss
};

}  // namespace trireme
