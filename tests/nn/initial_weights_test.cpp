// Initial weights are a function of (seed, name, global index): no mesh changes them.
#include "autograd/ops.h"
#include "nn/attention.h"
#include "nn/mlp.h"
#include "nn/vocab_embedding.h"
#include "tests/support/mesh.h"

using namespace trireme;
using namespace trireme::testing;

namespace initial_weights_test {
namespace {

struct Layers {
  nn::Build build;
  nn::VocabEmbedding tokens;
  nn::Attention attention;
  nn::Mlp mlp;
  Layers(const MeshPtr& mesh, DType dtype, std::uint64_t seed)
      : build(mesh, dtype, seed),
        tokens(build / "wte", 65, 24, 0.02, false),
        attention(build / "attn", {.width = 24, .heads = 4}),
        mlp(build / "mlp", {.width = 24, .hidden = 96}) {}
};

void collect(const std::string& mesh_text, DType dtype, std::uint64_t seed, Collected& weights) {
  run_mesh(mesh_text, [&](const MeshPtr& mesh) {
    const Layers layers(mesh, dtype, seed);
    for (const ParameterPtr& p : layers.build.parameters()) weights.add(p->name, whole(p->local, *p, *mesh));
  });
}

}  // namespace

TEST_CASE("shards of every mesh put together are the weights of one rank, bit for bit") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Collected reference;
    collect("tp=1", dtype, 11, reference);
    CHECK(reference.all().size() == 9);
    for (const std::string& mesh : Meshes{"tp=2", "tp=4", "dp=2,tp=2", "pp=2,tp=2"}) {
      Collected weights;
      collect(mesh, dtype, 11, weights);
      CHECK(weights.all().size() == reference.all().size());
      for (const auto& [name, tensors] : weights.all()) {
        for (const Tensor& tensor : tensors)
          CHECK_MESSAGE(same_bits(tensor, reference.all().at(name).front()), mesh, ": ", name);
      }
    }
  }
}

TEST_CASE("matrices are normal with the deviation asked for, and no two are alike") {
  Collected weights, others;
  collect("tp=1", DType::f32, 11, weights);
  collect("tp=1", DType::f32, 12, others);
  for (const auto& [name, tensors] : weights.all()) {
    const auto values = contiguous(tensors.front()).span<float>();
    double sum = 0, squares = 0;
    for (const float v : values) sum += v, squares += v * v;
    if (name.ends_with("bias")) {
      CHECK(squares == 0);
      continue;
    }
    const auto n = static_cast<double>(values.size());
    CHECK_MESSAGE(std::abs(sum / n) < 5 * 0.02 / std::sqrt(n), name);  // five standard errors of the mean
    CHECK_MESSAGE(std::abs(std::sqrt(squares / n) - 0.02) < 5 * 0.02 / std::sqrt(2 * n), name);  // and of the deviation
    CHECK_MESSAGE(!same_bits(tensors.front(), others.all().at(name).front()), name, " does not depend on the seed");
    for (const auto& [other, its] : weights.all()) {
      if (other != name)
        CHECK_MESSAGE(values[0] != contiguous(its.front()).span<float>()[0], name, " begins like ", other);
    }
  }
}

TEST_CASE("padded rows are zero, whatever the mesh") {
  for (const std::string& text : Meshes{"tp=1", "tp=4"}) {
    run_mesh(text, [](const MeshPtr& mesh) {
      const Layers layers(mesh, DType::f32, 11);
      const Parameter& table = *layers.build.parameters().front();
      const std::int64_t first = table.rectangle.start[0];
      for (std::int64_t row = 0; row < table.local.size(0); ++row) {
        const Tensor vector = view::slice(table.local, 0, row, 1);
        const double squares = kernels(Device::cpu).sum_squares({&vector, 1}).value();
        CHECK((squares == 0) == (first + row >= 65));
      }
    });
  }
}

TEST_CASE("a Linear without a split starts with PyTorch's weights, uniform in +-1/sqrt(in), on any mesh") {
  for (const std::string& text : Meshes{"tp=1", "tp=2"}) {
    run_mesh(text, [](const MeshPtr& mesh) {
      const nn::Build b(mesh, DType::f32, 7);
      nn::Linear layer(b / "a", 25, 300), same(nn::Build(mesh, DType::f32, 7) / "a", 25, {300}, nn::Split::none,
                                               {.weight_init = nn::Init::uniform(-0.2, 0.2)});
      CHECK(layer.weight().shape() == Shape{300, 25});
      CHECK(max(abs(layer.weight() - same.weight())).item() < 1e-7);
      CHECK(max(abs(layer.weight())).item() <= 0.2);
      CHECK(max(abs(layer.weight())).item() > 0.199);
      CHECK(max(abs(layer.bias())).item() == 0);
      CHECK(nn::Linear(b / "c", 3, 4, {.bias = false}).named_parameters().size() == 1);
    });
  }
}

TEST_CASE("weights that are to be loaded begin as zeros, those of adapters as always") {
  const nn::Build b(std::make_shared<const DeviceMesh>(self_group(), MeshShape{}), DType::f32, 5);
  const nn::Build loaded = b.to_be_loaded() / "layer";
  const auto first = [](const nn::Build& build, const char* name) {
    return values(build.parameter(name, {3, 4}, {}, nn::Init::normal(1))->local.detach())[0];
  };
  CHECK(first(loaded, "weight") == 0);
  CHECK(first(loaded, "lora_a") != 0);
}

TEST_CASE("an extent that does not divide is refused by name") {
  const auto make = [] {
    run_mesh("tp=2", [](const MeshPtr& mesh) {
      const nn::Linear layer(nn::Build(mesh, DType::f32, 1) / "up", 4, {7}, nn::Split::out, {});
    });
  };
  CHECK_THROWS_WITH_AS(make(), doctest::Contains("[up.weight] dim 0 of [7, 4] does not divide over tp=2"), Error);
}

}  // namespace initial_weights_test
