#include "train/loop/sinks.h"

#include "parallel/comm/watch/beacon.h"
#include "train/program/launcher.h"
#include "train/program/screen.h"
#include "train/runs/metrics_sink.h"
#include "train/terminal/plain_sinks.h"
#include "train/terminal/terminal_sink.h"
#include "train/tracking/tensorboard_sink.h"

namespace trireme {
namespace {

std::unique_ptr<EventSink> terminal_sink(const TrainOptions& options, std::int64_t eval_every) {
  const RunOptions& run = options.run;
  Screen& screen = Screen::of_process();
  if (run.json) return std::make_unique<JsonSink>(screen);
  if (run.quiet) return std::make_unique<QuietSink>(screen);
  return std::make_unique<TerminalSink>(screen,
                                        Eta::Schedule{.steps = options.schedule.steps,
                                                      .eval_every = eval_every,
                                                      .sample_every = run.sample_every,
                                                      .save_every = run.checkpoint_every},
                                        run.verbose);
}

}  // namespace

SinkResources SinkResources::acquire(const TrainOptions& options) {
  SinkResources resources;
  if (!options.tracking.prometheus.empty() && !options.run.dry_run && launcher_rank() == 0)
    resources.prometheus = std::make_unique<PrometheusSink>(options.tracking.prometheus);
  return resources;
}

void add_sinks(EventStream& events, const TrainOptions& options, std::int64_t eval_every, RunFolder& folder,
               SinkResources& resources) {
  events.add(terminal_sink(options, eval_every));
  events.add(std::make_unique<MetricsSink>(folder));
  if (options.tracking.tensorboard) events.add(std::make_unique<TensorboardSink>());
  if (resources.prometheus) {
    events.say("metrics for Prometheus: " + resources.prometheus->url());
    resources.prometheus->watch(watch::Beacon::current()->board());
    events.add(std::move(resources.prometheus));
  }
}

}  // namespace trireme
