// Does this mesh compute the same numbers as one rank?
//
//   build/bin/parity --mesh dp=2,tp=2,pp=2 --micro-batches 4
//   mpirun -n 8 build/bin/parity --mesh dp=2,tp=2,pp=2 --micro-batches 4
//   build/bin/parity --mesh tp=2,pp=2,cp=2 --context-parallel ulysses --document-mask on --dropout 0.1
//   build/bin/parity --task vit --mesh dp=2,pp=2 --zero 3
//
// Runs three steps on one rank and on the mesh, and prints the largest relative differences of loss, gradients before
// clipping and weights. Exit code 0: all differences are within --tolerance; 1: some are not. Without --tolerance there
// are two more rules. In bf16 and f16, both runs are compared with one rank in f32, and the mesh may be six times as
// far from it as one rank is (rounding_ratio). A larger difference is still accepted if rounding on one rank can cause
// it (rounding_reach).
// Read next: check/parity/parity.h, check/parity/rounding.h, train/loop/task.h.
#include <fmt/format.h>

#include <cstdio>
#include <mutex>
#include <optional>

#include "check/parity/parity.h"
#include "check/parity/rounding.h"
#include "examples/tasks/list.h"
#include "train/gpt/parity_options.h"
#include "train/launch/ranks.h"
#include "train/program/launcher.h"
#include "train/program/output.h"
#include "train/program/program.h"

using namespace trireme;

namespace {

ParityReport compare(const TrainOptions& options, const std::shared_ptr<const ParityReference>& reference,
                     std::optional<double> tolerance) {
  const Parity parity(options, reference);
  std::mutex mutex;
  ParityReport report;
  const auto on_rank = [&](Rank& rank) {
    ParityReport mine = parity.compare(rank.world);
    const std::scoped_lock lock(mutex);
    report = std::move(mine);
  };
  run_ranks(options, on_rank, {common_flag("tolerance", tolerance ? fmt::format("{}", *tolerance) : "auto")});
  return report;
}

struct Outcome {
  bool equal = false;
  std::string text;
};

Outcome within(double tolerance, const ParityReport& report) {
  return {report.largest() <= tolerance,
          fmt::format("largest difference {:.2e}, tolerance {:.0e}", report.largest(), tolerance)};
}

/// Without --tolerance.
Outcome explained(const TrainOptions& options, const ParityReport& report,
                  const std::shared_ptr<const ParityReference>& reference) {
  const bool rounds = size_of(options.precision.dtype) == 2;
  ParityReport one_rank;
  if (rounds) one_rank = Parity(on_one_rank(options), reference).compare(self_group());
  const ParityResult result = parity_result(options, report, rounds ? &one_rank : nullptr, reference);
  std::string text = rounds
                         ? fmt::format(
                               "largest difference to f32 {:.2e}, one rank's {:.2e}; at most {:.2f} times one rank's, "
                               "accepted {}",
                               report.largest(), one_rank.largest(), result.distance, result.accepted)
                         : within(parity_tolerance, report).text;
  if (result.explained) text += "; explained by rounding, which reaches as far on one rank";
  if (!result.one_rank_is_right())
    text += fmt::format(
        "; in the first step one rank's loss or norm differs from f32 by {:.2e}, and rounding explains {} at most: one "
        "rank in {} is wrong, too",
        result.one_rank, most_rounding_of_sums, name(options.precision.dtype));
  else if (!result.equal())
    text += "; more than rounding explains";
  return {result.equal(), text};
}

}  // namespace

int main(int argc, char** argv) {
  return run_program([&] {
    std::string task_name = "gpt";
    const std::unique_ptr<Task> task = chosen_task(argc, argv);
    task->set_parity_defaults();
    TrainOptions& options = task->options();
    std::optional<double> tolerance;
    bool all = false;

    Flags flags("parity", "Compares a mesh with one rank: loss, gradients, weights.");
    flags.example("parity --mesh dp=2,tp=2,pp=2 --micro-batches 4");
    declare_task_choice(flags, task_name);
    task->declare_model(flags);
    task->declare_parity_data(flags);
    declare_comparison(flags, options);
    flags.add("tolerance", "F", tolerance, "auto",
              "largest relative difference to one rank in the same dtype that is accepted; auto: 1e-5, or in bf16 and "
              "f16 what rounding explains",
              Range::above(0));
    flags.add_switch("all", all, "list every parameter, not only the worst five", true);
    if (!flags.parse_or_print(argc, argv)) return 0;
    require_output();
    resolve(options, launcher_ranks());
    task->prepare_parity();
    task->validate();
    options.run.config = flags.config_text();

    const bool rounds = size_of(options.precision.dtype) == 2 && !tolerance;
    const auto reference = parity_reference(rounds ? in_f32(options) : options, parity_model(*task));
    const ParityReport report = compare(options, reference, tolerance);
    if (launcher_rank() == 0) std::fputs(parity_table(report, all ? -1 : 5).c_str(), stdout);
    const Outcome outcome = tolerance ? within(*tolerance, report) : explained(options, report, reference);
    if (launcher_rank() == 0)
      fmt::print("{}: {}{}, {}, {}: {}\n", outcome.equal ? "equal" : "DIFFERENT",
                 task_name == "gpt" ? "" : task_name + ", ", to_string(options.mesh.shape), options.mesh.pipeline,
                 name(options.precision.dtype), outcome.text);
    return outcome.equal ? 0 : 1;
  });
}
