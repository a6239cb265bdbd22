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
#include "train/program.h"
#include "train/ranks.h"
#include "train/validate.h"

using namespace trireme;

int main(int argc, char** argv) {
  return run_program([&] {
    TrainOptions options;
    options.model.config = {.layers = 4, .heads = 4, .width = 64, .context = 32, .vocab = 65};
    options.model.vocab = 65;  // does not divide by anything: padding is at work
    options.batch.micro_batch = 2;
    double tolerance = 1e-5;
    bool all = false;

    Flags flags("parity", "Compares a mesh with one rank: loss, gradients, weights.");
    declare_model(flags, options.model);
    declare_experts(flags, options.model);
    declare_batch(flags, options.batch);
    flags.group("documents (made up: every eighth token or so is a separator)");
    declare_documents(flags, options.data);
    declare_mesh(flags, options.mesh);
    declare_precision(flags, options.precision);
    flags.group("comparison");
    flags.add("seed", "N", options.run.seed, "of initial weights and dropout", Range::at_least(0));
    flags.add_switch("verify", options.run.verify, "compare what should be the same on several ranks, bit by bit",
                     true);
    flags.add("tolerance", "F", tolerance, "largest relative difference that is accepted", Range::above(0));
    flags.add_switch("all", all, "list every parameter, not only the worst five", true);
    const Flags::Asked asked = flags.parse(argc, argv);
    if (asked != Flags::Asked::run) {
      if (launcher_rank() == 0)
        std::fputs((asked == Flags::Asked::help ? flags.help_text() : flags.config_text()).c_str(), stdout);
      return 0;
    }
    options.model.config.vocab = options.model.vocab.value_or(65);
    options.model.config.document_separator = options.data.separator(0, options.model.config.vocab);
    resolve(options, launcher_ranks());
    validate(options);

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
      for (const std::string& name : report.left_out)
        std::printf("not compared under adamw (its exact gradient is zero): %s\n", name.c_str());
      std::printf("%s: %s, %s, %s: largest difference %.2e, tolerance %.0e\n", equal ? "equal" : "DIFFERENT",
                  to_string(options.mesh.shape).c_str(), options.mesh.pipeline.c_str(),
                  name(options.precision.dtype).data(), report.largest(), tolerance);
    }
    return equal ? 0 : 1;
  });
}
