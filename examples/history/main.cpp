// The history of data parallelism, runnable: parameter servers, Hogwild, local SGD and DiLoCo, compressed gradients,
// each beside synchronous data parallelism, on rank threads with the links of a slow network.
//
//   build/bin/history                     # all chapters, as the tables of docs/history.md; half a minute
//   build/bin/history --only compression
//
// Read next: docs/history.md; examples/history/history.h.
#include <fmt/format.h>

#include <cstdio>
#include <optional>

#include "core/error.h"
#include "examples/history/history.h"
#include "train/options/flags.h"
#include "train/program/launcher.h"
#include "train/program/program.h"

using namespace trireme;
using namespace trireme::history;

namespace {

constexpr int fewest_steps = 40;  // with fewer no method has learnt much

using Chapter = std::vector<Curve> (*)(const Setting&);

const std::vector<std::pair<std::string, Chapter>>& chapters() {
  static const std::vector<std::pair<std::string, Chapter>> all = {{"parameter-server", parameter_server},
                                                                   {"hogwild", hogwild},
                                                                   {"local-sgd", local_sgd},
                                                                   {"compression", compression}};
  return all;
}

/// The first point at which the loss is as low.
std::optional<Point> reached(const Curve& curve, double loss) {
  for (const Point& point : curve.points)
    if (point.loss <= loss) return point;
  return std::nullopt;
}

/// A row for each method: the loss at the end, and when and with how many bytes it came to `target`.
void print_table(const std::vector<Curve>& curves, double target) {
  fmt::print("| method | seconds | MB | loss at the end | to a loss of {:.2f}: seconds | MB | |\n", target);
  fmt::print("|---|---|---|---|---|---|---|\n");
  for (const Curve& curve : curves) {
    const Point last = curve.points.back();
    if (last.loss >= 0.95 * curve.points.front().loss)
      fail(ExitCode::usage, "history",
           "{}: a loss of {} at the end, and {} before the first step; expected less by a twentieth at least; make "
           "more --steps, or use fewer --workers",
           curve.method, last.loss, curve.points.front().loss);
    const std::optional<Point> there = reached(curve, target);
    const std::string when = there ? fmt::format("{:.2f} | {:.1f}", there->seconds, there->megabytes) : "- | -";
    fmt::print("| {} | {:.2f} | {:.1f} | {:.3f} | {} | {} |\n", curve.method, last.seconds, last.megabytes, last.loss,
               when, curve.note);
  }
  std::fflush(stdout);
}

int run(int argc, const char* const* argv) {
  Setting setting;
  setting.links.within = setting.links.between = {.latency = 200e-6, .seconds_per_byte = 1 / 20e6};
  std::string only = "all";
  std::int64_t workers = setting.workers, steps = setting.steps;
  std::vector<std::string> names = {"all"};
  for (const auto& [name, chapter] : chapters()) names.push_back(name);
  Flags flags("history", "Trains a small classifier by the methods of the history of data parallelism.");
  flags.group("what is run");
  flags.add_choice("only", only, names, "one chapter");
  flags.add("workers", "N", workers, "workers that compute gradients", Range{.low = 2, .high = 16});
  flags.add("steps", "N", steps, "of each worker; threads of hogwild make one pass over all samples",
            Range{.low = fewest_steps, .high = 100'000});
  flags.only_with("only", "all, parameter-server, local-sgd or compression", [&] { return only != "hogwild"; });
  if (!flags.parse_or_print(argc, argv)) return 0;
  flags.refuse_unused();
  if (launcher_ranks() > 1)
    fail(ExitCode::usage, "history",
         "workers are threads of one process; expected no launcher; start it without mpirun");
  setting.workers = static_cast<int>(workers);
  setting.steps = static_cast<int>(steps);
  for (const auto& [name, chapter] : chapters()) {
    if (only != "all" && only != name) continue;
    const std::vector<Curve> curves = chapter(setting);
    fmt::print("\n{}, {} workers\n\n", name, setting.workers);
    print_table(curves, 1.1 * curves.front().points.back().loss);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program([&] { return run(argc, argv); });
}
