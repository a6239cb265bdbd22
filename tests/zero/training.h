// The options of GPT runs with --zero, for a model whose shards are uneven.
// Read next: tests/support/gpt_run.h, tests/zero/training_test.cpp.
#pragma once

#include "tests/support/gpt_run.h"
#include "train/gpt/validate_gpt.h"

namespace trireme::testing {

struct ZeroRun {
  std::string mesh = "dp=2";
  std::int64_t zero = 0;
  std::int64_t micro_batches = 1;
  DType dtype = DType::f32;
  double clip = 1.0;
  std::string pipeline = "1f1b";
  std::int64_t global_batch = 12;
  std::int64_t dp_shard = 0;
};

inline GptOptions options_of(const ZeroRun& run) {
  GptOptions o;
  o.model.config = {.layers = 4, .heads = 2, .width = 22, .context = 8, .vocab = test_vocab};  // 22: uneven shards
  o.mesh.axes = run.mesh;
  o.mesh.pipeline = run.pipeline;
  o.mesh.zero = run.zero;
  if (run.zero == 3) o.mesh.zero_resident = 200;
  if (run.dp_shard > 0) o.mesh.dp_shard = run.dp_shard;
  o.batch.global_batch = run.global_batch;
  o.batch.micro_batches = run.micro_batches;
  o.precision.dtype = run.dtype;
  o.optimizer.clip = run.clip;
  resolve(o, 0);
  validate(o);
  return o;
}

}  // namespace trireme::testing
