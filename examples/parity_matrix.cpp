// Checks that any mesh equals one rank, on more than a thousand combinations of mesh, ZeRO stage, schedule, sequence and
// context parallelism, recomputation and model:
//
//   build/bin/parity_matrix                  all of them
//   build/bin/parity_matrix --covering       a subset in which every pair of choices occurs
//
// A failure is one line with the command that reproduces it. Read next: train/parity_matrix.h, train/parity.h.
#include <chrono>
#include <cstdio>
#include <map>
#include <mutex>

#include "core/parallel_for.h"
#include "train/parity.h"
#include "train/parity_matrix.h"
#include "train/parity_options.h"
#include "train/program.h"
#include "train/ranks.h"

using namespace trireme;

namespace {

constexpr double tolerance = 1e-5;

/// One-rank references, made once for each model that combinations share.
class References {
 public:
  std::shared_ptr<const ParityReference> of(const TrainOptions& options) {
    const std::string key = parity_reference_key(options);
    std::shared_ptr<const ParityReference>& reference = made_[key];
    if (reference == nullptr) reference = parity_reference(options);
    return reference;
  }

 private:
  std::map<std::string, std::shared_ptr<const ParityReference>> made_;
};

/// The largest relative difference to one rank.
double difference(const Combination& combination, References& references) {
  const TrainOptions options = read_parity_options(combination.arguments);
  const Parity parity(options, references.of(options));
  std::mutex mutex;
  double largest = 0;
  run_ranks(options, [&](Rank& rank) {
    const double mine = parity.compare(rank.world).largest();
    const std::scoped_lock lock(mutex);
    largest = std::max(largest, mine);
  });
  return largest;
}

/// Whether it is equal; prints a line if not.
bool check(const Combination& combination, References& references, double& worst) {
  std::string problem;
  try {
    const double largest = difference(combination, references);
    worst = std::max(worst, largest);
    if (largest <= tolerance) return true;
    problem = fmt::format("differs by {:.2e}", largest);
  } catch (const std::exception& error) { problem = error.what(); }
  std::printf("FAILED: %s   (%s)\n", to_string(combination).c_str(), problem.c_str());
  std::fflush(stdout);
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program([&] {
    bool covering = false, list = false;
    std::int64_t every = 1, report_every = 200;
    Flags flags("parity_matrix", "Compares many combinations of mesh and options with one rank.");
    flags.group("matrix");
    flags.add_switch("covering", covering, "only a subset in which every pair of choices occurs", true);
    flags.add("every", "N", every, "only every N-th combination", Range::at_least(1));
    flags.add("report-every", "N", report_every, "combinations between lines of progress", Range::at_least(1));
    flags.add_switch("list", list, "print the commands, run nothing", true);
    const Flags::Asked asked = flags.parse(argc, argv);
    if (asked != Flags::Asked::run) {
      std::fputs((asked == Flags::Asked::help ? flags.help_text() : flags.config_text()).c_str(), stdout);
      return 0;
    }
    std::vector<Combination> combinations = parity_matrix();
    if (covering) combinations = covering_subset(combinations);
    const auto start = std::chrono::steady_clock::now();
    References references;
    double worst = 0;
    int passed = 0, failed = 0;
    for (std::size_t i = 0; i < combinations.size(); i += static_cast<std::size_t>(every)) {
      if (list) {
        std::printf("%s\n", to_string(combinations[i]).c_str());
        continue;
      }
      ++(check(combinations[i], references, worst) ? passed : failed);
      if ((passed + failed) % report_every == 0) {
        std::printf("%d of %zu: largest difference %.2e\n", passed + failed, combinations.size(), worst);
        std::fflush(stdout);
      }
    }
    if (list) return 0;
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::printf("parity with one rank to %.0e: largest difference %.2e, %.0f s\n%d passed, %d failed\n", tolerance,
                worst, seconds.count(), passed, failed);
    return failed == 0 ? 0 : 1;
  });
}
