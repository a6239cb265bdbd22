// Steps of the real Trainer on made-up tokens, for tests that compare runs bit by bit.
#pragma once

#include <doctest/doctest.h>

#include <mutex>
#include <vector>

#include "core/memory.h"
#include "core/parallel_for.h"
#include "tests/support/batches.h"
#include "train/gpt/gpt_setup.h"
#include "train/gpt/validate_gpt.h"
#include "train/step/trainer.h"

namespace trireme::testing {

inline GptOptions training_options(const std::string& mesh, std::int64_t micro_batches = 1) {
  GptOptions o;
  o.model.config = {.layers = 4, .heads = 4, .width = 48, .context = 16, .vocab = 65};
  o.model.vocab = 65;  // not a multiple of any tp here, so there is padding
  o.mesh.axes = mesh;
  o.batch.global_batch = 8;
  o.batch.micro_batches = micro_batches;
  return o;
}

inline Batch made_up_batch(const GptOptions& o, std::int64_t first, std::int64_t count) {
  return made_up_batch(first, count, o.model.config.context, 65);
}

/// The gradients of one step in this rank's Trainer.
inline Trainer::GradientReport gradients_of_step(Trainer& trainer, const GptOptions& o, const DeviceMesh& mesh,
                                                 std::int64_t consumed = 0) {
  const BatchSizes sizes = o.batch_sizes();
  const BatchPlan plan = sizes.on_rank(mesh.coord(Axis::dp));
  const auto next = [&](int i) { return made_up_batch(o, plan.first_sample(consumed, i), sizes.micro_batch); };
  return trainer.gradients(next, 1.0 / static_cast<double>(sizes.tokens_per_step(o.model.config.context)));
}

/// Runs `body(trainer, options, mesh)` on every rank of the mesh, a thread each.
template <class Body>
void on_ranks(GptOptions o, const Body& body) {
  resolve(o, 0);
  validate(o);
  set_threads(1);
  run_thread_ranks(o.mesh.shape.ranks(), 1, ProcessGroup::Deadline(1800),
                   [&](const std::shared_ptr<ProcessGroup>& world) {
                     const auto mesh = std::make_shared<const DeviceMesh>(world, o.mesh.shape);
                     Trainer trainer(make_gpt(o, o.model.config, mesh), o);
                     body(trainer, o, *mesh);
                   });
}

}  // namespace trireme::testing
