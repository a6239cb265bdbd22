// Shared by the tests of checkpoints: small runs, and weights that show what was not loaded.
// Read next: tests/support/gpt_run.h, tests/checkpoint/resharding_test.cpp.
#pragma once

#include <doctest/doctest.h>

#include "core/kernels.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/checkpoint/folder.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/gpt_run.h"
#include "tests/support/sanitized.h"
#include "train/gpt/validate_gpt.h"

namespace trireme::testing {

/// Fills every tensor that a checkpoint holds with 777, so that one that is not loaded is noticed.
inline void scramble(Trainer& trainer) {
  for (const checkpoint::HeldTensor& held : checkpoint::held_tensors(
           trainer.optimizer().weights_and_state(), trainer.model().buffers(), trainer.model().mesh())) {
    Tensor value = held.value;
    kernels(value.device()).fill(value, 777);
  }
}

/// A small model on one or a few ranks.
inline GptOptions small_options(const std::string& mesh) {
  GptOptions o;
  o.model.config = {.layers = 2, .heads = 2, .width = 16, .context = 8, .vocab = test_vocab};
  o.mesh.axes = mesh;
  o.batch.global_batch = 8;
  o.batch.micro_batch = 2;
  resolve(o, 0);
  validate(o);
  return o;
}

}  // namespace trireme::testing
