// Draws a pipeline schedule, and prints its costs:
//
//   build/bin/schedule --pipeline zero-bubble --pp 4 --micro-batches 8 --svg zero-bubble.svg
//   build/bin/schedule --pipeline interleaved:2 --pp 4 --micro-batches 8
//
// No model, no data: these are the lists that train_gpt runs, checked and simulated in units of time.
// Read next: parallel/pipeline/schedules.h, examples/pictures/schedule.h.
#include <charconv>
#include <cstdio>

#include "core/io.h"
#include "examples/pictures/schedule.h"
#include "parallel/pipeline/drawing.h"
#include "parallel/pipeline/schedules.h"
#include "train/options/flags.h"
#include "train/program/output.h"
#include "train/program/program.h"

using namespace trireme;

namespace {

/// "1:1:1": the units of time of a forward, and of the input part and the weight part of a backward.
pipeline::Costs parse_costs(const std::string& text) {
  pipeline::Costs costs;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (int* cost : {&costs.forward, &costs.input, &costs.weight}) {
    const auto [after, error] = std::from_chars(at, end, *cost);
    const bool separated = cost == &costs.weight ? after == end : after != end && *after == ':';
    if (error != std::errc() || !separated || *cost < 1 || *cost > 1000) {
      fail(ExitCode::usage, "--costs",
           "'{}' is not forward:input:weight; expected three whole numbers from 1 to 1000, "
           "as in 1:1:1; change --costs",
           text);
    }
    at = after + 1;
  }
  return costs;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program([&] {
    std::string name = "1f1b", costs_text = "1:1:1", svg;
    std::int64_t ranks = 4, microbatches = 8;
    Flags flags("schedule", "Draws a pipeline schedule, and prints bubble, live activations and messages.");
    flags.example("schedule --pipeline zero-bubble --pp 4 --micro-batches 8");
    flags.group("schedule");
    flags.add("pipeline", pipeline::schedule_spellings("|"), name, pipeline::schedule_help());
    flags.add("pp", "P", ranks, "ranks of the pipeline, as pp in --mesh of train_gpt", Range{.low = 1, .high = 256});
    flags.add("micro-batches", "M", microbatches, "micro-batches in a step", Range{.low = 1, .high = 4096});
    flags.add("costs", "F:B:W", costs_text, "units of time of a forward and of a backward's two parts");
    flags.group("output");
    flags.add("svg", "PATH", svg, "file to draw the timeline in; empty: none");
    if (!flags.parse_or_print(argc, argv)) return 0;
    require_output();
    if (!svg.empty()) require_own_kind("--svg", svg, drawing_file);
    const pipeline::Costs costs = parse_costs(costs_text);
    const pipeline::Schedule schedule =
        pipeline::make_schedule(name, static_cast<int>(ranks), static_cast<int>(microbatches));
    std::fputs(pipeline::render(schedule, 0, costs).c_str(), stdout);
    if (!svg.empty()) write_file(svg, pictures::draw_schedule(schedule, costs));
    return 0;
  });
}
