// An embedding tied across pipeline stages: one gradient, the sum of what the first and the last stage contribute.
#include <doctest/doctest.h>

#include <cmath>

#include "core/random.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/schedules.h"
#include "tests/grad_sync/support.h"
#include "tests/support/elements.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

constexpr std::int64_t vocab = 11, width = 6, tokens = 5;

ParameterPtr random_parameter(const std::string& name, const Shape& shape) {
  auto parameter = make_parameter(name, shape);
  copy(random(shape, stream_of(name), DType::f32), parameter->local);
  return parameter;
}

/// Token embedding, one linear layer per stage, logits with the embedding again; the loss is a fixed smooth function
/// of the logits.
struct TiedModel {
  ParameterList parameters;
  ParameterPtr embedding, layer;
  bool first, last;

  explicit TiedModel(int stage, int stages) : first(stage == 0), last(stage == stages - 1) {
    if (first) parameters.push_back(embedding = random_parameter("embedding", {vocab, width}));
    parameters.push_back(layer = random_parameter(fmt::format("layer{}", stage), {width, width}));
    if (last && !first) {
      parameters.push_back(embedding = random_parameter("embedding", {vocab, width}));
      embedding->copy_of_earlier_stage = true;
    }
  }

  Tensor forward(const Tensor& received, int sample, double scale_factor) const {
    Tensor x = received;  // [T, D]
    if (first) {
      Tensor ids = Tensor::zeros({tokens}, DType::i32);
      for (std::int64_t t = 0; t < tokens; ++t) {
        ids.data<std::int32_t>()[t] = static_cast<std::int32_t>((7 * sample + 3 * t) % vocab);
      }
      x = trireme::embedding(embedding->value(), ids);  // [T, D]
    }
    x = tanh(linear(x, layer->value(), {}));                                          // [T, D]
    return last ? sum(square(linear(x, embedding->value(), {}))) * scale_factor : x;  // []
  }
};

/// The embedding's gradient after samples 0 to samples - 1 on one rank, one after the other.
Tensor reference_gradient(int layers, int samples) {
  std::vector<TiedModel> stages;
  stages.reserve(static_cast<std::size_t>(layers));
  for (int s = 0; s < layers; ++s) stages.emplace_back(s, layers);
  stages.back().embedding = stages.front().embedding;
  for (int sample = 0; sample < samples; ++sample) {
    Tensor x;
    for (const TiedModel& stage : stages) x = stage.forward(x, sample, 1.0 / samples);
    backward(x);
  }
  return stages.front().embedding->grad();
}

}  // namespace

TEST_CASE("both copies of a tied embedding get the sum, with the same bits, under every schedule") {
  constexpr int microbatches = 3;
  for (const char* text : {"pp=2", "pp=3", "dp=2,pp=2", "dp=2,pp=4"}) {
    const MeshShape shape = parse_mesh(text, 0);
    const int stages = shape.size(Axis::pp);
    const Tensor reference = reference_gradient(stages, microbatches * shape.size(Axis::dp));
    for (const std::string& name : pipeline::schedule_examples(1)) {
      CAPTURE(text);
      CAPTURE(name);
      std::vector<Tensor> copies(static_cast<std::size_t>(shape.ranks()));
      run_thread_ranks(shape.ranks(), 1, deadline, [&](const std::shared_ptr<ProcessGroup>& world) {
        const DeviceMesh mesh(world, shape);
        const TiedModel model(mesh.coord(Axis::pp), stages);
        GradSync sync(model.parameters, mesh, 64);
        pipeline::Executor executor(pipeline::make_schedule(name, stages, microbatches), mesh.group(Axis::pp));
        const double scale_factor = 1.0 / (microbatches * mesh.size(Axis::dp));
        const auto forward = [&](int, const Tensor& x, int m) {
          return model.forward(x, mesh.coord(Axis::dp) * microbatches + m, scale_factor);
        };
        for (int step = 0; step < 2; ++step) {  // the second must not add to the first
          sync.zero_grad();
          executor.run({forward, {tokens, width}, DType::f32},
                       [&](int, int m) { sync.last_microbatch(m + 1 == microbatches); });
          sync.finish();
        }
        if (model.embedding) copies[static_cast<std::size_t>(mesh.rank())] = clone(model.embedding->grad());
      });
      const Tensor first = copies.front();
      CHECK(relative_difference(first, reference) < 1e-6);
      int holders = 0;
      for (const Tensor& copy : copies) {
        if (!copy.defined()) continue;
        ++holders;
        CHECK(same_bits(copy, first));
      }
      CHECK(holders == 2 * shape.size(Axis::dp));
    }
  }
}

TEST_CASE("a tied weight used twice on one rank runs its hook once, and is sent whole") {
  const Tensor reference = reference_gradient(1, 2);
  std::vector<Tensor> gradients(2);
  run_thread_ranks(2, 1, deadline, [&](const std::shared_ptr<ProcessGroup>& world) {
    const DeviceMesh mesh(world, parse_mesh("dp=2", 2));
    const TiedModel model(0, 1);
    GradSync sync(model.parameters, mesh, 1);
    sync.last_microbatch();
    backward(model.forward({}, mesh.rank(), 0.5));
    CHECK(sync.finish().buckets_overlapped == 2);
    gradients[static_cast<std::size_t>(mesh.rank())] = clone(model.embedding->grad());
  });
  CHECK(same_bits(gradients[0], gradients[1]));
  CHECK(relative_difference(gradients[0], reference) < 1e-6);
}

TEST_CASE("a copy whose original the first stage lacks is refused") {
  const auto make = [] {
    run_thread_ranks(2, 1, deadline, [](const std::shared_ptr<ProcessGroup>& world) {
      const DeviceMesh mesh(world, parse_mesh("pp=2", 2));
      auto parameter = make_parameter(mesh.is_first(Axis::pp) ? "wte" : "embedding", {3, 2});
      parameter->copy_of_earlier_stage = mesh.is_last(Axis::pp);
      const GradSync sync({parameter}, mesh);
      mesh.world().barrier();
    });
  };
  CHECK_THROWS_WITH_AS(make(), doctest::Contains("a copy of embedding [3, 2]"), Error);
}

TEST_CASE("a model that every stage builds whole is refused, with the parameter's name") {
  const auto start = [](const char* mesh_text) {
    const MeshShape shape = parse_mesh(mesh_text, 0);
    run_thread_ranks(shape.ranks(), 1, deadline, [&](const std::shared_ptr<ProcessGroup>& world) {
      const DeviceMesh mesh(world, shape);
      const ParameterList parameters = {make_parameter("up.weight", {4, 2}), make_parameter("down.weight", {2, 4})};
      const GradSync sync(parameters, mesh);
    });
  };
  start("dp=2,tp=2");
  CHECK_THROWS_WITH_AS(start("pp=2"), doctest::Contains("ranks 0 and 1 of pp both made up.weight"), Error);
}
