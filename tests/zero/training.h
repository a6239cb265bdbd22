// GPT runs with --zero, of a model whose shards are uneven, and what they leave in a checkpoint.
// Read next: tests/support/gpt_run.h, tests/zero/training_test.cpp.
#pragma once

#include <filesystem>
#include <string>

#include "tests/support/elements.h"
#include "tests/support/files.h"
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
  std::string optimizer = "adamw";
  double ema_decay = 0;  ///< 0: no average
  DType moments = DType::f32;
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
  o.optimizer.optimizer = run.optimizer;
  if (run.optimizer == "sgd") o.optimizer.nesterov = true;
  o.optimizer.moments = run.moments;
  if (run.ema_decay > 0) o.optimizer.ema_decay = run.ema_decay;
  o.optimizer.clip = run.clip;
  resolve(o, 0);
  validate(o);
  return o;
}

/// The names and bytes of all whole tensors of a saved run.
inline std::string contents(const std::filesystem::path& out) {
  checkpoint::Checkpoint saved(find_saved_run(out));
  std::string text;
  for (const std::string& name : saved.names()) {
    const Tensor tensor = saved.read(name);
    text += name;
    text.append(static_cast<const char*>(tensor.raw()), static_cast<std::size_t>(tensor.bytes()));
  }
  return text;
}

/// Trains for `steps` steps, from the run in `from` if given, and saves. Returns contents(out).
inline std::string trained(const ZeroRun& run, int steps, const std::filesystem::path& out,
                           const std::filesystem::path& from = {}) {
  const GptOptions o = options_of(run);
  run_mesh(run.mesh, [&](const MeshPtr& mesh) {
    GptRun run(o, mesh);
    if (!from.empty()) run.load(from);
    run.steps(steps);
    run.save(out);
  });
  return contents(out);
}

inline double largest_difference(const std::filesystem::path& a, const std::filesystem::path& b) {
  checkpoint::Checkpoint left(find_saved_run(a)), right(find_saved_run(b));
  REQUIRE(left.names() == right.names());
  double largest = 0;
  for (const std::string& name : left.names()) {
    if (name.find("qkv.bias") != std::string::npos) continue;
    keep_largest(largest, relative_difference(left.read(name), right.read(name)));
  }
  return largest;
}

}  // namespace trireme::testing
