// Checks that any mesh computes the same as one rank, on more than 2000 combinations of mesh, ZeRO stage, schedule,
// sequence and context parallelism, recomputation and model:
//
//   build/bin/parity_matrix                  all of them
//   build/bin/parity_matrix --covering       a subset in which every pair of choices occurs
//   build/bin/parity_matrix --device cuda    the meshes on a GPU, which all ranks share
//
// In f32, a relative difference of 1e-5 is accepted. The subset also runs in bf16: there, a mesh may be six times as
// far from one rank in f32 as one rank in bf16 is. A larger distance is accepted only if rounding on one rank explains
// it; a line says so. Each failure is one line with the command that reproduces it.
// Read next: check/parity/parity_matrix.h, check/parity/rounding.h.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <mutex>

#include "check/parity/parity.h"
#include "check/parity/parity_matrix.h"
#include "check/parity/rounding.h"
#include "core/parallel_for.h"
#include "train/gpt/parity_options.h"
#include "train/launch/ranks.h"
#include "train/program/program.h"
#include "train/program/progress.h"
#include "train/program/screen.h"
#include "train/program/units.h"

using namespace trireme;

namespace {

/// The results of one rank, computed once for each model and shared by combinations.
class References {
 public:
  std::shared_ptr<const ParityReference> of(const GptOptions& options) {
    std::shared_ptr<const ParityReference>& reference = made_[config_text(on_one_rank(options))];
    if (reference == nullptr) reference = parity_reference(options, gpt_parity(options.model.config));
    return reference;
  }
  /// The distance of one rank in the options' dtype from one rank in f32.
  const ParityReport& rounding(const GptOptions& options) {
    const auto [found, added] = rounding_.try_emplace(config_text(on_one_rank(options)));
    if (added) found->second = Parity(on_one_rank(options), of(in_f32(options))).compare(self_group());
    return found->second;
  }

 private:
  std::map<std::string, std::shared_ptr<const ParityReference>> made_;
  std::map<std::string, ParityReport> rounding_;
};

ParityReport compare(const TrainOptions& options, const std::shared_ptr<const ParityReference>& reference) {
  const Parity parity(options, reference);
  std::mutex mutex;
  ParityReport report;
  run_ranks(options, [&](Rank& rank) {
    ParityReport mine = parity.compare(rank.world);
    const std::scoped_lock lock(mutex);
    report = std::move(mine);
  });
  return report;
}

/// In f32, rounding explains nothing beyond the tolerance: no combination needs that.
ParityResult check(const Combination& combination, References& references) {
  const GptOptions options = read_parity_options(combination.arguments);
  const auto reference = references.of(in_f32(options));
  const ParityReport report = compare(options, reference);
  if (options.precision.dtype == DType::f32) return {.distance = report.largest(), .accepted = parity_tolerance};
  return parity_result(options, report, &references.rounding(options), reference);
}

/// The results for one kind of combinations: how many were equal, and the largest distance.
struct Tally {
  const char* what;
  double limit;
  const char* more_arguments;  // of the command that reproduces a failure
  int passed = 0, explained = 0, failed = 0;
  double worst = 0;

  /// Prints a line if the combination is not equal, or only because rounding explains its distance.
  void add(const Combination& combination, References& references) {
    try {
      const ParityResult result = check(combination, references);
      worst = std::max(worst, result.distance);
      ++(result.equal() ? passed : failed);
      if (!result.one_rank_is_right())
        print("FAILED", combination, fmt::format("one rank differs from f32 by {:.2e}", result.one_rank));
      if (!result.one_rank_is_right() || result.distance <= result.accepted) return;
      explained += result.explained ? 1 : 0;
      print(result.explained ? "explained by rounding" : "FAILED", combination,
            fmt::format("{} {:.2e}, accepted {}", what, result.distance, result.accepted));
    } catch (const std::exception& error) {
      ++failed;
      print("FAILED", combination, error.what());
    }
  }
  void print(const char* kind, const Combination& combination, const std::string& why) const {
    Screen::of_process().print(fmt::format("{}: {}{}   ({})", kind, to_string(combination), more_arguments, why));
  }
};

/// Checks every N-th combination, and prints progress after every `report_every` checks. On a terminal there is a bar.
void check_all(Tally& tally, const std::vector<Combination>& combinations, References& references, std::int64_t every,
               std::int64_t report_every) {
  Screen& screen = Screen::of_process();
  ProgressBar bar(screen, "compared", static_cast<double>(combinations.size()), format_count);
  for (std::size_t i = 0; i < combinations.size(); i += static_cast<std::size_t>(every)) {
    tally.add(combinations[i], references);
    bar.set(static_cast<double>(i + 1));
    const int done = tally.passed + tally.failed;
    if (done % report_every != 0) continue;
    screen.print(fmt::format("{} of {}: {} {:.2e}", done, combinations.size(), tally.what, tally.worst));
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run_program([&] {
    bool covering = false, list = false;
    std::int64_t every = 1, report_every = 200;
    std::string device = "cpu";
    Flags flags("parity_matrix", "Compares many combinations of mesh and options with one rank.");
    flags.group("matrix");
    flags.add_switch("covering", covering, "only a subset in which every pair of choices occurs", true);
    flags.add("every", "N", every, "only every N-th combination", Range::at_least(1));
    flags.add("report-every", "N", report_every, "combinations between lines of progress", Range::at_least(1));
    flags.add_choice("device", device, {"cpu", "cuda"}, "where the meshes run; one rank always runs on the CPU");
    flags.add_switch("list", list, "print the commands, run nothing", true);
    if (!flags.parse_or_print(argc, argv)) return 0;
    std::vector<Combination> combinations = parity_matrix(), rounded;
    const std::vector<Combination> subset = covering_subset(combinations);
    std::transform(subset.begin(), subset.end(), std::back_inserter(rounded), in_bf16);
    if (covering) combinations = subset;
    for (std::vector<Combination>* part : {&combinations, &rounded})
      for (Combination& combination : *part) combination = on_device(combination, device);
    if (list) {
      for (const std::vector<Combination>* part : {&combinations, &rounded})
        for (const Combination& combination : *part) fmt::print("{}\n", to_string(combination));
      return 0;
    }
    const auto start = std::chrono::steady_clock::now();
    References references;
    Tally exact{"largest relative difference to one rank", parity_tolerance, " --tolerance 1e-5"};
    Tally bf16{"distance to f32 over one rank's in bf16, at most", most_rounding_ratio, ""};
    check_all(exact, combinations, references, every, report_every);
    check_all(bf16, rounded, references, every, report_every);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    for (const Tally& tally : {exact, bf16})
      fmt::print("{:>5} combinations, {} {:.2e} (accepted {}{})\n", tally.passed + tally.failed, tally.what,
                 tally.worst, tally.limit,
                 tally.explained == 0 ? "" : fmt::format("; {} explained by rounding", tally.explained));
    const int failed = exact.failed + bf16.failed;
    fmt::print("{:.0f} s\n{} passed, {} failed\n", seconds.count(), exact.passed + bf16.passed, failed);
    return failed == 0 ? 0 : 1;
  });
}
