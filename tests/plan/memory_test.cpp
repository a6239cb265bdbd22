// Memory in a dry run, against that of the run itself, rank by rank.
#include "ops/plan/rank_memory.h"

#include <doctest/doctest.h>

#include <cstdio>
#include <mutex>
#include <thread>

#include "check/parity/models.h"
#include "check/parity/parity_matrix.h"
#include "core/parallel_for.h"
#include "train/gpt/parity_options.h"
#include "train/launch/ranks.h"

namespace trireme {
namespace {

RankProgram program_of(const GptOptions& options) {
  const ParityModel model = gpt_parity(options.model.config);
  const GlobalBatch data = model.data(options);
  const std::int64_t each = options.batch_sizes().micro_batch;
  return {.model = [model, options](std::shared_ptr<const DeviceMesh> mesh) { return model.make(options, mesh); },
          .batch = [data, each](const BatchPlan& plan, int microbatch) {
            const std::int64_t first = plan.first_sample(0, microbatch);
            Batch batch{.tensors = data.batch.tensors, .sample_ids = {first}};
            for (auto& [name, tensor] : batch.tensors) tensor = view::slice(tensor, 0, first, each);
            return batch;
          }};
}

}  // namespace

TEST_CASE("a dry run takes the memory of the run") {
  double sum = 0, largest = 0;
  int count = 0;
  for (const Combination& combination : covering_subset(parity_matrix())) {
    GptOptions options = read_parity_options(combination.arguments);
    options.model.config.experts.force_balance = true;
    const RankProgram program = program_of(options);
    std::vector<RankMemory> measured(static_cast<std::size_t>(options.mesh.shape.ranks()));
    run_ranks(options, [&](Rank& rank) {
      RankMemory mine = measured_memory(options, program, rank.world);
      measured[static_cast<std::size_t>(rank.world->rank())] = mine;
    });
    for (int rank = 0; rank < options.mesh.shape.ranks(); ++rank) {
      const RankMemory& m = measured[static_cast<std::size_t>(rank)];
      std::thread([&] {
        set_threads(1);
        const RankMemory d = predicted_memory(options, program, rank);
        const double off = std::abs(double(d.total.peak) / double(m.total.peak) - 1);
        sum += off; ++count; largest = std::max(largest, off);
        std::string by;
        for (int i = 0; i < memory_categories; ++i) {
          const auto k = static_cast<std::size_t>(i);
          if (d.categories[k].peak != m.categories[k].peak)
            by += fmt::format(" {} {}/{}", name(static_cast<MemoryCategory>(i)), d.categories[k].peak, m.categories[k].peak);
        }
        by += " |"; for (int i = 0; i < memory_categories; ++i) by += fmt::format(" {}/{}", d.at_peak[i], m.at_peak[i]);
        std::printf("%s rank %d: %ld / %ld %.4f%s\n", to_string(combination).c_str(), rank, d.total.peak, m.total.peak, double(d.total.peak)/double(m.total.peak), by.c_str());
      }).join();
    }
  }
  std::printf("mean %.5f largest %.5f of %d\n", sum / count, largest, count);
  CHECK(largest < 0.02);
}

}  // namespace trireme
