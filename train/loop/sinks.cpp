#include "train/loop/sinks.h"

#include "train/program/screen.h"
#include "train/runs/metrics_sink.h"
#include "train/terminal/plain_sinks.h"
#include "train/terminal/terminal_sink.h"

namespace trireme {
namespace {

std::unique_ptr<EventSink> terminal_sink(const TrainOptions& options) {
  const RunOptions& run = options.run;
  Screen& screen = Screen::of_process();
  if (run.json) return std::make_unique<JsonSink>(screen);
  if (run.quiet) return std::make_unique<QuietSink>(screen);
  return std::make_unique<TerminalSink>(screen,
                                        Eta::Schedule{.steps = options.schedule.steps,
                                                      .eval_every = run.eval_every,
                                                      .sample_every = run.sample_every,
                                                      .save_every = run.checkpoint_every},
                                        run.verbose);
}

}  // namespace

void add_sinks(EventStream& events, const TrainOptions& options, RunFolder& folder) {
  events.add(terminal_sink(options));
  events.add(std::make_unique<MetricsSink>(folder));
}

}  // namespace trireme
