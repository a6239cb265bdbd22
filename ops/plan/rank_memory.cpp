#include "ops/plan/rank_memory.h"

#include "core/dry_run.h"
#include "parallel/comm/dry_group.h"

namespace trireme {

RankMemory measured_memory(const TrainOptions& options, const RankProgram& program,
                           const std::shared_ptr<ProcessGroup>& world, int steps) {
  const auto mesh = std::make_shared<const DeviceMesh>(world, options.mesh.shape);
  Trainer trainer(program.model(mesh), options);
  const BatchPlan plan = options.batch_sizes().on_rank(mesh->coord(Axis::dp));
  const auto next_batch = [&](int microbatch) { return program.batch(plan, microbatch); };
  MemoryPool& pool = *MemoryPool::current()->on(trainer.model().device());
  for (int step = 0; step < steps; ++step) {
    const Trainer::Pass pass = trainer.gradients(next_batch, 1.0);
    StepNumbers numbers = trainer.numbers(pass);
    trainer.queue_update(1e-3, numbers);
    trainer.update(1e-3, numbers.norm());
  }
  RankMemory memory;
  for (int i = 0; i < memory_categories; ++i)
    memory.categories[static_cast<std::size_t>(i)] = pool.use(static_cast<MemoryCategory>(i));
  memory.total = pool.total();
  memory.at_peak = pool.at_peak();
  return memory;
}

RankMemory predicted_memory(const TrainOptions& options, const RankProgram& program, int rank, int steps) {
  const DryRun dry;
  return measured_memory(options, program, dry_world(options.mesh.shape.ranks(), rank), steps);
}

}  // namespace trireme
