// Runs with guards: a loop like that of train_gpt on made-up samples, and the bits it ends with.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "check/faults/injection.h"
#include "data/char_tokenizer.h"
#include "tests/parity/training.h"
#include "tests/support/mesh.h"
#include "train/launch/ranks.h"
#include "train/loop/guards.h"

namespace trireme::testing {

/// A mesh and its ZeRO stage. The model has experts if the mesh has ep.
struct Case {
  const char* mesh;
  std::int64_t zero = 0;
};

inline GptOptions guarded_options(const Case& c) {
  GptOptions o = training_options(c.mesh, 2);
  o.model.config.layers = 2;
  o.model.config.width = 32;
  o.batch.global_batch = 12;
  o.mesh.zero = c.zero;
  if (c.zero == 3) o.mesh.zero_resident = 0;
  if (std::string(c.mesh).find("ep=") != std::string::npos) o.model.config.experts.count = 4;
  return o;
}

/// This rank's weights, optimizer state and buffers.
inline std::vector<Tensor> bits_of(Trainer& trainer) {
  std::vector<Tensor> tensors;
  for (const StateTensor& w : trainer.optimizer().weights()) tensors.push_back(clone(w.value));
  for (const StateTensor& s : trainer.optimizer().state()) tensors.push_back(clone(s.value));
  for (const BufferPtr& b : trainer.model().buffers()) tensors.push_back(clone(b->value));
  return tensors;
}

/// Attempts steps until `progress` has made `steps`, or an attempt throws.
inline void make_steps(Guards& guards, Trainer& trainer, const GptOptions& o, Progress& progress, std::int64_t steps,
                       const std::function<void(std::int64_t step)>& before = {},
                       const std::function<void(bool updated)>& after = {}) {
  while (progress.steps < steps) {
    if (before) before(progress.steps + 1);
    const Trainer::GradientReport report = gradients_of_step(trainer, o, trainer.model().mesh(), progress.samples);
    const bool updated = guards.checked_update(report, 3e-3);
    if (after) after(updated);
  }
}

}  // namespace trireme::testing
