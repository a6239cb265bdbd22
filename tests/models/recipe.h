// Runs of a small GPT for the tests of models: Recipe has what differs from the defaults, losses_on() trains.
// Read next: tests/support/gpt_run.h.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/support/gpt_run.h"
#include "tests/support/largest.h"

namespace trireme::testing {

struct Recipe {
  GptConfig config = small_config();
  DType dtype = DType::f32;
  std::int64_t seed = 7, global_batch = 8, micro_batch = 2;
  const char* pipeline = "1f1b";
  const char* optimizer = "adamw";
  bool sequence_parallel = false;
  Device device = Device::cpu;
  MemoryCategory state = MemoryCategory::optimizer;
};

inline GptOptions options_of(const Recipe& recipe, const MeshShape& mesh) {
  GptOptions o;
  o.model.config = recipe.config;
  o.mesh.axes = to_string(mesh);
  o.mesh.pipeline = recipe.pipeline;
  o.mesh.sequence_parallel = recipe.sequence_parallel;
  o.batch.global_batch = recipe.global_batch;
  o.batch.micro_batch = recipe.micro_batch;
  o.precision.dtype = recipe.dtype;
  o.precision.device = name(recipe.device);
  o.optimizer.optimizer = recipe.optimizer;
  o.optimizer.memory = recipe.state;
  o.run.seed = recipe.seed;
  resolve(o, 0);
  return o;
}

inline GptRun run_of(const MeshPtr& mesh, const Recipe& recipe) {
  return GptRun(options_of(recipe, mesh->shape()), mesh);
}

/// The losses of `count` steps on a mesh.
inline std::vector<double> losses_on(const std::string& mesh_text, const Recipe& recipe, int count) {
  std::vector<double> losses;
  run_mesh(mesh_text, [&](const MeshPtr& mesh) {
    const std::vector<double> mine = run_of(mesh, recipe).steps(count);
    if (mesh->rank() == 0) losses = mine;
  });
  return losses;
}

inline double largest_relative(const std::vector<double>& got, const std::vector<double>& expected) {
  REQUIRE(got.size() == expected.size());
  double largest = 0;
  for (std::size_t i = 0; i < got.size(); ++i)
    keep_largest(largest, std::abs(got[i] - expected[i]) / std::abs(expected[i]));
  return largest;
}

}  // namespace trireme::testing
