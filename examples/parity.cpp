// Does this mesh give the same numbers as one rank?
//
//   build/bin/parity --mesh dp=2,tp=2,pp=2 --micro-batches 4
//   mpirun -n 8 build/bin/parity --mesh dp=2,tp=2,pp=2 --micro-batches 4
//   build/bin/parity --mesh tp=2,pp=2,cp=2 --context-parallel ulysses --document-mask on --dropout 0.1
//
// Runs three steps on one rank and on the mesh, and prints the largest relative differences of loss, gradients before
// clipping and weights. Exit code 0: all within --tolerance; 1: not.
// Read next: train/parity.h.
#include <cstdio>
#include <mutex>

#include "train/launcher.h"
#include "train/parity.h"
#include "train/parity_options.h"
#include "train/program.h"
#include "train/ranks.h"

using namespace trireme;

int main(int argc, char** argv) {
  return run_program([&] {
    TrainOptions options = parity_defaults();
    double tolerance = 1e-5;
    bool all = false;

    Flags flags("parity", "Compares a mesh with one rank: loss, gradients, weights.");
    declare_parity(flags, options);
    flags.add("tolerance", "F", tolerance, "largest relative difference that is accepted", Range::above(0));
    flags.add_switch("all", all, "list every parameter, not only the worst five", true);
    const Flags::Asked asked = flags.parse(argc, argv);
    if (asked != Flags::Asked::run) {
      if (launcher_rank() == 0)
        std::fputs((asked == Flags::Asked::help ? flags.help_text() : flags.config_text()).c_str(), stdout);
      return 0;
    }
    resolve_parity(options, launcher_ranks());

    const Parity parity(options);
    std::mutex mutex;
    ParityReport report;
    run_ranks(options, [&](Rank& rank) {
      ParityReport mine = parity.compare(rank.world);
      const std::scoped_lock lock(mutex);
      report = std::move(mine);
    });
    const bool equal = report.largest() <= tolerance;
    if (launcher_rank() == 0) {
      std::fputs(parity_table(report, all ? -1 : 5).c_str(), stdout);
      std::printf("%s: %s, %s, %s: largest difference %.2e, tolerance %.0e\n", equal ? "equal" : "DIFFERENT",
                  to_string(options.mesh.shape).c_str(), options.mesh.pipeline.c_str(),
                  name(options.precision.dtype).data(), report.largest(), tolerance);
    }
    return equal ? 0 : 1;
  });
}
