// Mistakes in the use of layers are refused where they are made, by the layer's name.
#include "nn/attention.h"
#include "nn/containers.h"
#include "nn/cross_entropy.h"
#include "nn/mlp.h"
#include "nn/vocab_embedding.h"
#include "tests/support/errors.h"
#include "tests/support/mesh.h"

using namespace trireme;
using namespace trireme::testing;

namespace nn_refusals_test {
namespace {

nn::Build one_rank() { return {std::make_shared<const DeviceMesh>(self_group(), MeshShape{}), DType::f32, 1}; }

Tensor ids(const std::vector<std::int32_t>& values, const Shape& shape) {
  return Tensor::from(std::span<const std::int32_t>(values), shape);
}

}  // namespace

TEST_CASE("labels out of range are refused; negative ones are ignored") {
  const Tensor logits = random({2, 3}, 1, DType::f32);
  const auto loss = [&](const std::vector<std::int32_t>& labels) {
    return nn::cross_entropy(logits, ids(labels, {2}), {.scale = 1}).item();
  };
  CHECK(says(error_of(
                 [&] {
                   loss({0, 3});
                 },
                 ExitCode::data),
             "trireme: [cross_entropy] target 3 at [1] of [2] is out of range; expected 0 to 2, or a negative one; "
             "change the targets, or the number of classes"));
  CHECK(loss({0, -100}) > 0);
  // Padded columns are no tokens.
  CHECK(says(error_of(
                 [&] {
                   nn::cross_entropy(logits, ids({0, 2}, {2}), {.slice = {.first = 0, .valid = 2, .global = 2}});
                 },
                 ExitCode::data),
             "target 2 at [1] of [2] is out of range; expected 0 to 1"));
  const Tensor no_classes = Tensor::empty({2, 0}), no_rows = Tensor::empty({0, 3});
  CHECK(says(error_of(
                 [&] {
                   nn::cross_entropy(no_classes, ids({-1, 0}, {2}), {});
                 },
                 ExitCode::data),
             "[cross_entropy] target 0 at [1] of [2] is out of range"));
  CHECK(nn::cross_entropy(no_rows, ids({}, {0}), {}).item() == 0);
}

TEST_CASE("labels that are written to before backward are refused") {
  Tensor logits = random({2, 3}, 1, DType::f32), labels = ids({0, 2}, {2});
  require_grad(logits);
  const Tensor loss = nn::cross_entropy(logits, labels, {.scale = 1});
  labels.data<std::int32_t>()[0] = 1;
  CHECK(says(error_of([&] { backward(loss); }, ExitCode::internal), "[cross_entropy] targets [2] was written to"));
}

TEST_CASE("tokens outside the vocabulary are refused, on every tp rank") {
  run_mesh("tp=2", [](const MeshPtr& mesh) {
    const nn::Build b(mesh, DType::f32, 1);
    nn::VocabEmbedding table(b / "wte", 70, 4, 0.02, false);
    CHECK(table(ids({0, 69}, {1, 2})).shape() == Shape{1, 2, 4});
    CHECK(says(error_of(
                   [&] {
                     table(ids({0, 70}, {1, 2}));
                   },
                   ExitCode::data),
               "[embedding] token 70 at [0, 1] of [1, 2] is out of range; expected 0 to 69"));
  });
}

TEST_CASE("sizes that were not given are refused, by name") {
  const nn::Build b = one_rank();
  CHECK(says(
      error_of([&] { nn::Attention(b / "a", {.heads = 2}); }, ExitCode::usage),
      "[attention] a: width 0, heads 2, kv_heads 0 and head_width 0; expected a width and heads of at least 1; set "
      "AttentionOptions::width"));
  CHECK(says(error_of([&] { nn::Attention(b / "a", {.width = 4, .heads = 0}); }, ExitCode::usage),
             "set AttentionOptions::heads"));
  CHECK(says(error_of([&] { nn::Mlp(b / "m", {.hidden = 4}); }, ExitCode::usage),
             "[mlp] m: width 0 and hidden 4; expected both to be at least 1; set MlpOptions::width"));
  CHECK(says(error_of([&] { nn::Mlp(b / "m", {.width = 4}); }, ExitCode::usage), "set MlpOptions::hidden"));
  CHECK(says(error_of([&] { nn::LayerNorm(b / "n", 0); }, ExitCode::usage),
             "[build] 'n.weight' would have the shape [0], without elements"));
  CHECK(b.parameters().empty());
}

TEST_CASE("what no layer can be made of is refused") {
  const nn::Build b = one_rank();
  CHECK(says(error_of([&] { b / ""; }, ExitCode::internal), "[build] an empty name below ''"));
  CHECK(says(error_of([] { nn::Build(nullptr, DType::f32, 1); }, ExitCode::internal), "[build] the mesh is null"));
  CHECK(says(error_of([] { DeviceMesh(nullptr, MeshShape{}); }, ExitCode::internal), "[DeviceMesh] the world is null"));
  CHECK(says(error_of([&] { nn::Build(b.shared_mesh(), DType::i32, 1); }, ExitCode::internal), "parameters of i32"));
  CHECK(says(error_of([&] { nn::Dropout(b / "d", 1.5); }, ExitCode::usage), "[dropout] d: a probability of 1.5"));
  CHECK(says(error_of([&] { nn::Linear(b / "l", 3, {}, nn::Split::none, {}); }, ExitCode::internal),
             "[linear] l: no output dims"));
  CHECK(says(
      error_of([&] { nn::Linear(b / "l", 3, {2}, nn::Split::none, {.init_std = std::nan("")}); }, ExitCode::internal),
      "[build] 'l.weight' would begin with nan"));
  CHECK(says(error_of([&] { b.parameter("p", {4}, {}, nn::Init::ones(), {.logical_rows = 9}); }, ExitCode::internal),
             "'p' has 9 logical rows in a shape [4]"));
  CHECK(says(error_of([&] { b.parameter("p", {4}, {.tp = placement::S(1)}, nn::Init::ones()); }, ExitCode::usage),
             "[p] the placement S(1) on tp of a parameter [4]; expected a dim from 0 to 0"));
  nn::Attention attention(b / "attn", {.width = 4, .heads = 2});
  CHECK(says(error_of(
                 [&] {
                   attention(Tensor::full({2, 4}, 1));
                 },
                 ExitCode::internal),
             "[attention] expected an input [B, T, D], got [2, 4]; in the layer 'attn'"));
}

TEST_CASE("targets and options that do not fit the logits are refused") {
  const Tensor logits = random({2, 3}, 1, DType::f32), labels = ids({0, 1}, {2});
  const auto said = [](const Tensor& x, const Tensor& targets, const nn::CrossEntropyOptions& options) {
    return error_of([&] { nn::cross_entropy(x, targets, options); }, ExitCode::internal);
  };
  CHECK(says(said(logits, logits, {}), "2 numbers of classes, which are their last dim; got targets [2, 3]"));
  CHECK(says(said(logits, {}, {}), "[cross_entropy] the targets are undefined"));
  CHECK(says(said(logits, labels, {.smoothing = 2}), "[cross_entropy] a label smoothing of 2"));
  CHECK(says(said(Tensor::zeros({2, 3}, DType::i32), labels, {}), "[cross_entropy] logits in i32"));
}

TEST_CASE("an error inside layers names the innermost") {
  struct Outer : nn::Module {
    nn::Linear inner;
    explicit Outer(const nn::Build& b) : Module(b), inner(b / "fc", 4, {2}, nn::Split::none, {}) {}
    Tensor forward(const Tensor& x) override { return inner(x); }
  };
  Outer outer(one_rank() / "blocks");
  const std::string said = error_of([&] { outer(Tensor::full({1, 5}, 1)); }, ExitCode::internal);
  CHECK(says(said, "[linear] the weight [2, 4] does not take inputs of shape [1, 5]"));
  CHECK(says(said, "; in the layer 'blocks.fc'"));
  CHECK(said.find("'blocks'") == std::string::npos);
}

TEST_CASE("dropout without sample numbers is refused, as its mask would be the same in each step") {
  const nn::Build b = one_rank();
  nn::Dropout drop(b / "drop", 0.5);
  const Tensor x = Tensor::full({1, 2, 3}, 1);
  CHECK(says(error_of([&] { drop(x); }, ExitCode::internal),
             "[dropout] drop: the masks are a function of the numbers of the samples, which nobody has set"));
  b.run_state()->first_sample = 0;
  CHECK(drop(x).shape() == x.shape());
  b.run_state()->first_sample.reset();
  b.run_state()->training = false;
  CHECK(same_bits(drop(x), x));
}

TEST_CASE("empty hooks, null modules and a second Dropout of one name are refused") {
  const nn::Build b = one_rank();
  nn::Linear layer(b / "layer", 2, 2);
  CHECK(says(error_of([&] { layer.on_forward({}); }, ExitCode::internal), "[module] an empty hook for 'layer'"));
  CHECK(says(error_of(
                 [&] {
                   nn::ModuleList<nn::Linear>(b / "list", 2,
                                              [](const nn::Build&, int) { return std::unique_ptr<nn::Linear>(); });
                 },
                 ExitCode::internal),
             "[ModuleList] list: the function returned null as module 0"));
  CHECK(says(error_of(
                 [&] {
                   nn::ModuleList<nn::Linear>(
                       b / "list", -1, [](const nn::Build& at, int) { return std::make_unique<nn::Linear>(at, 2, 2); });
                 },
                 ExitCode::internal),
             "[ModuleList] list: -1 modules"));
  const nn::Dropout first(b / "drop", 0.1);
  CHECK(says(error_of([&] { nn::Dropout(b / "drop", 0.2); }, ExitCode::usage),
             "[dropout] two Dropouts have the name 'drop', and would drop the same elements"));
  nn::Dropout(b / "other", 0.2);
  nn::Dropout(b / "other", 0.2);  // the first is gone
}

}  // namespace nn_refusals_test
