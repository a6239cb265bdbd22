// The memory of a dry run, against that of the run itself: each rank of combinations in which every pair of choices
// occurs.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "check/parity/parity.h"
#include "check/parity/parity_matrix.h"
#include "train/gpt/parity_options.h"
#include "train/launch/ranks.h"
#include "train/step/rank_memory.h"

using namespace trireme;

namespace {

GptOptions measured_options(const Combination& combination) {
  GptOptions options = read_parity_options(combination.arguments);
  options.model.config.experts.force_balance = true;  // as in a dry run
  return options;
}

/// Of each rank of a real run.
std::vector<RankMemory> measured(const GptOptions& options, const DryProgram& program) {
  std::vector<RankMemory> ranks(static_cast<std::size_t>(options.mesh.shape.ranks()));
  run_ranks(options, [&](Rank& rank) {
    const auto mesh = std::make_shared<const DeviceMesh>(rank.world, options.mesh.shape);
    Trainer trainer(program.model(options, mesh), options);
    const Trainer::NextBatch next_batch =
        copies_of_sample(program, options.batch_sizes().micro_batch, std::int64_t{rank.world->rank()} << 20);
    make_steps(trainer, next_batch, 2);
    ranks[static_cast<std::size_t>(rank.world->rank())] = memory_used(Device::cpu);
  });
  return ranks;
}

struct Errors {
  double sum = 0, largest = 0;
  int count = 0;
  void add(std::int64_t predicted, std::int64_t real) {
    const double error =
        std::abs(static_cast<double>(predicted - real)) / static_cast<double>(std::max<std::int64_t>(real, 1));
    sum += error, largest = std::max(largest, error), ++count;
  }
};

}  // namespace

// How many messages are under way depends on how ranks are scheduled: only their mean is compared.
TEST_CASE("a dry run takes the memory of the run, rank by rank" * doctest::test_suite("thorough")) {
  Errors total, category;
  for (const Combination& combination : covering_subset(parity_matrix())) {
    const GptOptions options = measured_options(combination);
    const DryProgram program = dry_program(gpt_parity(options.model.config), options);
    const std::vector<RankMemory> real = measured(options, program);
    for (std::size_t rank = 0; rank < real.size(); ++rank) {
      INFO(to_string(combination), " rank ", rank);
      const RankMemory dry = dry_run_memory(options, program, static_cast<int>(rank));
      total.add(dry.peak, real[rank].peak);
      for (int i = 0; i < memory_categories; ++i) {
        const auto place = static_cast<std::size_t>(i);
        if (static_cast<MemoryCategory>(i) == MemoryCategory::communication) continue;
        category.add(dry.peaks[place], real[rank].peaks[place]);
        CHECK_MESSAGE(category.largest < 0.02, name(static_cast<MemoryCategory>(i)), ": predicted ", dry.peaks[place],
                      ", was ", real[rank].peaks[place]);
      }
    }
  }
  MESSAGE(total.count, " ranks: mean error ", total.sum / total.count, ", largest ", total.largest,
          "; categories but messages: mean ", category.sum / category.count, ", largest ", category.largest);
  CHECK(category.sum / category.count < 1e-3);
  CHECK(total.sum / total.count < 0.02);
}
