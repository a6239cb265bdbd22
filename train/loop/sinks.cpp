#include "train/loop/sinks.h"

#include "train/program/screen.h"
#include "train/runs/metrics_sink.h"
#include "train/terminal/terminal_sink.h"

namespace trireme {

void add_sinks(EventStream& events, const TrainOptions&, RunFolder& folder) {
  events.add(std::make_unique<TerminalSink>(Screen::of_process()));
  events.add(std::make_unique<MetricsSink>(folder));
}

}  // namespace trireme
