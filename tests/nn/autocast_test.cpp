// Layers with f32 parameters under Autocast, on meshes against one rank: the same dtypes, and numbers equal up to the
// rounding of bf16. tests/autograd/autocast_test.cpp has the operations.
#include "autograd/autocast.h"

#include "nn/attention.h"
#include "nn/context_attention.h"
#include "nn/cross_entropy.h"
#include "nn/losses.h"
#include "nn/mlp.h"
#include "nn/moe.h"
#include "nn/positions.h"
#include "nn/recurrent.h"
#include "nn/sequence_order.h"
#include "tests/support/mesh.h"

using namespace trireme;
using namespace trireme::testing;

namespace autocast_layers_test {
namespace {

constexpr double rounding = 16 * 0x1p-9;
constexpr std::int64_t width = 32;
const Shape stream = {2, 8, width};  // [B, T, D]

struct Block : nn::Module {
  nn::LayerNorm norm1;
  nn::RmsNorm norm2;
  nn::Attention attention;
  nn::Mlp mlp;
  Block(const nn::Build& b, bool rotary, bool gated)
      : Module(b),
        norm1(b / "norm1", width),
        norm2(b / "norm2", width),
        attention(b / "attention", {.width = width,
                                    .heads = 8,
                                    .kv_heads = rotary ? 2 : 0,
                                    .rope = rotary ? std::optional(nn::Rotary{}) : std::nullopt}),
        mlp(b / "mlp", {.width = width, .hidden = 48, .gate = gated ? std::optional(Unary::silu) : std::nullopt}) {}
  Tensor forward(const Tensor& x) override {
    const Tensor h = attention.forward_add(x, norm1(x));
    return h + mlp(norm2(h));
  }
};

struct Results {
  Tensor y, dx;
  std::map<std::string, Tensor> gradients;
};

Results run_block(const std::string& mesh_text, bool sequence, bool rotary, bool gated, std::optional<DType> products) {
  Results results;
  std::mutex mutex;
  run_mesh(mesh_text, [&](const MeshPtr& mesh) {
    const nn::Build build(mesh, DType::f32, 3, {.sequence = sequence});
    Block block(build, rotary, gated);
    randomise(build.parameters(), 0.2);
    Tensor x = tp_part(random(stream, 1, DType::f32), build.residual(), *mesh), y;
    require_grad(x);
    {
      const Autocast autocast(products);
      y = block(x);
      CHECK(y.dtype() == DType::f32);
      CHECK(block.mlp(block.norm1(x)).dtype() == products.value_or(DType::f32));
      CHECK(block.attention(block.norm1(x)).dtype() == products.value_or(DType::f32));
    }
    backward(y, tp_part(random(stream, 2, DType::f32), build.residual(), *mesh));
    Results mine{tp_whole(y.detach(), build.residual(), *mesh), tp_whole(grad(x), build.residual(), *mesh), {}};
    for (const ParameterPtr& p : build.parameters()) {
      CHECK(p->grad().dtype() == DType::f32);
      Tensor gradient = clone(p->grad());
      for (const Axis axis : gradient_axes(p->placements, *mesh)) mesh->group(axis).all_reduce(gradient).wait();
      mine.gradients[p->name] = whole(gradient, *p, *mesh);
    }
    const std::scoped_lock lock(mutex);
    results = std::move(mine);
  });
  return results;
}

}  // namespace

TEST_CASE("autocast: a block on tp, with and without sequence parallelism, is that of one rank up to rounding") {
  for (const bool rotary : {false, true}) {
    const bool gated = rotary;
    const Results exact = run_block("tp=1", false, rotary, gated, std::nullopt);
    const Results one = run_block("tp=1", false, rotary, gated, DType::bf16);
    CHECK(relative_difference(one.y, exact.y) > 1e-5);  // it did round
    CHECK(relative_difference(one.y, exact.y) < rounding);
    for (const char* mesh : {"tp=2", "tp=4", "dp=1"}) {
      for (const bool sequence : {false, true}) {
        const Results some = run_block(mesh, sequence, rotary, gated, DType::bf16);
        CHECK_MESSAGE(relative_difference(some.y, one.y) < rounding, mesh, " sequence ", sequence);
        CHECK_MESSAGE(relative_difference(some.dx, one.dx) < rounding, mesh, " sequence ", sequence);
        for (const auto& [name, gradient] : some.gradients) {
          // A key's bias has no gradient but rounding (nn/attention.h).
          const bool key = name == "attention.qkv.bias";
          if (!key)
            CHECK_MESSAGE(relative_difference(gradient, one.gradients.at(name)) < 2 * rounding, mesh, " ", name);
        }
      }
    }
  }
}

TEST_CASE("autocast: attention over cp multiplies in bf16 and is attention on one rank") {
  const Shape shape = {2, 8, 4, 8};  // [B, T, H, Dh]
  const Tensor q = random(shape, 1, DType::f32), k = random(shape, 2, DType::f32), v = random(shape, 3, DType::f32);
  const Tensor expected = attention(cast(q, DType::bf16), cast(k, DType::bf16), cast(v, DType::bf16));
  for (const nn::ContextParallel method : {nn::ContextParallel::ring, nn::ContextParallel::ulysses}) {
    run_mesh("cp=2", [&](const MeshPtr& mesh) {
      const auto mine = [&](const Tensor& whole) {
        std::vector<Tensor> parts;
        for (const nn::PositionRun& run : nn::zigzag(8, 2, mesh->coord(Axis::cp)))
          parts.push_back(view::slice(whole, 1, run.global, run.length));
        return concat(parts, 1);
      };
      const Autocast autocast(DType::bf16);
      const Tensor out = nn::context_attention(mine(q), mine(k), mine(v), *mesh, method, {});
      CHECK(out.dtype() == DType::bf16);
      CHECK(relative_difference(out, mine(expected)) < rounding);
    });
  }
}

TEST_CASE("autocast: experts multiply in bf16, and the router chooses in f32") {
  run_mesh("tp=1", [&](const MeshPtr& mesh) {
    const nn::Build build(mesh, DType::f32, 3);
    nn::Moe moe(build / "moe", {.expert = {.width = width, .hidden = 16}, .experts = {.count = 4, .top_k = 2}});
    randomise(build.parameters(), 0.2);
    build.run_state()->step_sequences = stream[0];
    const Tensor x = random(stream, 1, DType::f32), exact = moe(x);
    const Autocast autocast(DType::bf16);
    const Tensor y = moe(x);
    CHECK(y.dtype() == DType::f32);
    CHECK(relative_difference(y, exact) > 1e-5);
    CHECK(relative_difference(y, exact) < rounding);  // no token has changed its experts
  });
}

TEST_CASE("autocast: recurrent layers multiply in bf16; losses are those of f32") {
  run_mesh("tp=1", [&](const MeshPtr& mesh) {
    const nn::Build build(mesh, DType::f32, 3);
    nn::Lstm lstm(build / "lstm", {.input = width, .hidden = 6, .layers = 2});
    nn::Gru gru(build / "gru", {.input = width, .hidden = 6, .layers = 2, .bidirectional = true});
    const Tensor x = random(stream, 1, DType::f32);
    for (nn::Module* layer : {static_cast<nn::Module*>(&lstm), static_cast<nn::Module*>(&gru)}) {
      const Tensor exact = (*layer)(x);
      const Autocast autocast(DType::bf16);
      const Tensor y = (*layer)(x);
      CHECK(y.dtype() == DType::bf16);
      CHECK(relative_difference(y, exact) < rounding);
    }
    const Tensor logits = random({3, 5}, 2, DType::bf16), wide = cast(logits, DType::f32);
    const Tensor target = random({3, 5}, 3, DType::f32), ids = random_ids({3}, 4, 0, 5);
    const nn::CrossEntropyOptions weighted{.class_weights = Tensor::ones({5})};
    const Tensor mse = nn::mse_loss(wide, target, 1), plain = nn::cross_entropy(wide, ids, {}),
                 by_class = nn::cross_entropy(wide, ids, weighted);
    const Autocast autocast(DType::bf16);
    CHECK(same_bits(nn::mse_loss(logits, target, 1), mse));
    CHECK(same_bits(nn::cross_entropy(logits, ids, {}), plain));
    CHECK(same_bits(nn::cross_entropy(wide, ids, weighted), by_class));
  });
}

}  // namespace autocast_layers_test
