// What every module has: parameters by name, a summary, forwards of several tensors, hooks.
#include "nn/module.h"

#include <sstream>

#include "autograd/engine.h"
#include "nn/mlp.h"
#include "nn/moe.h"
#include "nn/summary.h"
#include "nn/vocab_embedding.h"
#include "tests/support/errors.h"
#include "tests/support/mesh.h"

using namespace trireme;
using namespace trireme::testing;

namespace module_test {
namespace {

struct Block : nn::Module {
  nn::LayerNorm norm;
  nn::Mlp mlp;
  Block(const nn::Build& b, std::int64_t width)
      : Module(b), norm(b / "norm", width), mlp(b / "mlp", {.width = width, .hidden = 4 * width}) {}
  Tensor forward(const Tensor& x) override { return x + mlp(norm(x)); }
};

/// Two inputs and two results.
struct Pair : nn::ModuleBase {
  nn::Linear left, right;
  explicit Pair(const nn::Build& b)
      : ModuleBase(b),
        left(b / "left", 3, {3}, nn::Split::none, {.bias = false}),
        right(b / "right", 3, {3}, nn::Split::none, {.bias = false}) {}
  std::pair<Tensor, Tensor> operator()(const Tensor& x, const Tensor& y) {
    return call([&] {
      const Tensor a = left(x), b = right(y);
      return std::pair(a * b, a + b);
    });
  }
};

nn::Build build(DType dtype = DType::f64) {
  return {std::make_shared<const DeviceMesh>(self_group(), MeshShape{}), dtype, 7};
}

std::vector<std::string> names_of(const ParameterList& parameters) {
  std::vector<std::string> names;
  for (const ParameterPtr& p : parameters) names.push_back(p->name);
  return names;
}

}  // namespace

TEST_CASE("a module has the parameters below its name, and no others") {
  const nn::Build b = build();
  Block third(b / "blocks" / "3", 8), thirtieth(b / "blocks" / "30", 8);
  CHECK(names_of(third.norm.parameters()) == std::vector<std::string>{"blocks.3.norm.weight", "blocks.3.norm.bias"});
  CHECK(names_of(third.parameters()) == std::vector<std::string>{"blocks.3.norm.weight", "blocks.3.norm.bias",
                                                                 "blocks.3.mlp.up.weight", "blocks.3.mlp.up.bias",
                                                                 "blocks.3.mlp.down.weight", "blocks.3.mlp.down.bias"});
  CHECK(b.parameters().size() == 12);
  std::vector<std::string> within;
  for (const nn::NamedParameter& named : third.named_parameters()) within.push_back(named.name);
  CHECK(within == std::vector<std::string>{"norm.weight", "norm.bias", "mlp.up.weight", "mlp.up.bias",
                                           "mlp.down.weight", "mlp.down.bias"});
  CHECK(third.parameter("mlp.up.bias") == third.parameters()[3]);
  CHECK(third.mlp.parameter("up.bias") == third.parameters()[3]);
  CHECK(third.modules().size() == 5);  // itself, norm, mlp, up and down
}

TEST_CASE("an unknown name is refused with the nearest") {
  Block block(build() / "block", 8);
  CHECK(says(error_of([&] { block.parameter("mlp.up.wieght"); }, ExitCode::usage),
             "trireme: [module] 'block' has no parameter 'mlp.up.wieght'; expected one of its 6; the nearest are "
             "'mlp.up.weight', 'mlp.up.bias', 'mlp.down.weight'"));
  const nn::Build b = build();
  const nn::Dropout drop(b / "drop", 0.5);
  CHECK(says(error_of([&] { drop.parameter("p"); }, ExitCode::usage),
             "'drop' has no parameter 'p', and no other on this rank"));
}

TEST_CASE("a module that no longer exists is not listed") {
  const nn::Build b = build();
  Block block(b, 8);
  CHECK(b.modules().size() == 5);
  {
    const nn::LayerNorm other(b / "other", 8);
    CHECK(b.modules().size() == 6);
  }
  CHECK(b.modules().size() == 5);
  CHECK(b.modules().front() == &block);
}

TEST_CASE("a summary has types, shapes and counts of whole tensors, and what this rank holds") {
  const nn::Build b = build(DType::f32);
  Block block(b / "block", 8);
  const std::string expected =
      "block         Block               568\n"
      "  norm        LayerNorm            16\n"
      "    weight               [8]        8\n"
      "    bias                 [8]        8\n"
      "  mlp         Mlp                 552\n"
      "    up        Linear              288\n"
      "      weight             [32, 8]  256\n"
      "      bias               [32]      32\n"
      "    down      Linear              264\n"
      "      weight             [8, 32]  256\n"
      "      bias               [8]        8\n"
      "568 parameters in f32, all of them trained; 2,272 bytes on this rank\n";
  CHECK(nn::summary(block) == expected);
  CHECK(fmt::format("{}", block) == expected);
  std::ostringstream stream;
  stream << block;
  CHECK(stream.str() == expected);
  CHECK(nn::summary(b / "block") == expected);
  CHECK(nn::count_elements(block.parameters()) == 568);
}

TEST_CASE("a summary on a mesh says which part a rank has, and does not count padding") {
  run_mesh("tp=2", [](const MeshPtr& mesh) {
    const nn::Build b(mesh, DType::bf16, 7);
    nn::Mlp mlp(b / "mlp", {.width = 8, .hidden = 32});
    nn::VocabEmbedding table((b / "table").unit(), 70, 4, 0.02, false);
    const std::string text = nn::summary(b);
    CHECK(says(text, "[32, 8]  256  S(0) on tp: [16, 8] here\n"));
    CHECK(says(text, "unit\n"));
    CHECK(says(text, "[70, 4]  280  S(0) on tp: [64, 4] here; padded to 128 rows\n"));
    CHECK(says(text, "832 parameters in bf16, all of them trained; "));
    CHECK(nn::count_elements(b.parameters()) == 552 + 280);
  });
}

TEST_CASE("a forward of two tensors and two results announces its unit, and trains as without one") {
  const Tensor x = random({2, 3}, 1), y = random({2, 3}, 2);
  std::vector<Tensor> gradients;
  for (const bool unit : {false, true}) {
    const nn::Build b = build();
    Pair pair(unit ? (b / "pair").unit() : b / "pair");
    if (unit) error_of([&] { pair.left(x); }, ExitCode::internal);  // only a call of the pair begins a use
    const auto [product, total] = pair(x, y);
    backward(sum(product) + sum(square(total)));
    for (const ParameterPtr& p : pair.parameters()) gradients.push_back(p->grad());
  }
  CHECK(same_bits(gradients[0], gradients[2]));
  CHECK(same_bits(gradients[1], gradients[3]));
  Pair pair(build() / "pair");
  CHECK(says(error_of([&] { pair(x, random({2, 4}, 1)); }, ExitCode::internal), "; in the layer 'pair.right'"));
}

TEST_CASE("a unit of several tensors is announced to an observer once in forward, and before each backward") {
  struct Log : UnitObserver {
    std::vector<bool> backwards;
    void before_use(std::size_t, bool backward) override { backwards.push_back(backward); }
  } log;
  const nn::Build b = build();
  Pair pair((b / "pair").unit());
  b.units().set_observer(&log);
  const auto [product, total] = pair(random({2, 3}, 1), random({2, 3}, 2));
  CHECK(log.backwards == std::vector<bool>{false});
  backward(sum(product) + sum(total));
  CHECK(log.backwards == std::vector<bool>{false, true, true});
  b.units().set_observer(nullptr);
}

TEST_CASE("hooks see a module's input and output, and change nothing") {
  const nn::Build b = build();
  Block block(b / "block", 8);
  const Tensor x = random({2, 3, 8}, 1), before = block(x);
  std::vector<std::string> seen;
  block.norm.on_forward([&](const nn::Module& module, const Tensor& in, const Tensor& out) {
    seen.push_back(module.name());
    CHECK(same_bits(in, x));
    CHECK(out.shape() == x.shape());
  });
  block.on_forward([&](const nn::Module& module, const Tensor&, const Tensor& out) {
    seen.push_back(module.name());
    CHECK(same_bits(out, before));
  });
  CHECK(same_bits(block(x), before));
  CHECK(seen == std::vector<std::string>{"block.norm", "block"});
  block.norm.clear_forward_hooks();
  block.clear_forward_hooks();
  block(x);
  CHECK(seen.size() == 2);
}

}  // namespace module_test
