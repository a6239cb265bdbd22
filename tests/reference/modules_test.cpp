// The examples of the reference: modules, layers, and their weights in files.
#include <doctest/doctest.h>
#include <fmt/core.h>

#include "autograd/engine.h"
#include "nn/attention.h"
#include "nn/batch_norm.h"
#include "nn/containers.h"
#include "nn/conv.h"
#include "nn/cross_entropy.h"
#include "nn/embedding.h"
#include "nn/losses.h"
#include "nn/mlp.h"
#include "nn/moe.h"
#include "nn/multihead_attention.h"
#include "nn/pool.h"
#include "nn/recurrent.h"
#include "nn/summary.h"
#include "nn/vocab_embedding.h"
#include "nn/weights.h"
#include "tests/support/files.h"

using namespace trireme;

namespace reference_modules {

//! [module]
struct Block : nn::Module {
  nn::LayerNorm norm;
  nn::Mlp mlp;
  Block(const nn::Build& b, std::int64_t width)
      : Module(b), norm(b / "norm", width), mlp(b / "mlp", {.width = width, .hidden = 4 * width}) {}
  Tensor forward(const Tensor& x) override { return x + mlp(norm(x)); }  // [.., D] -> [.., D]
};
//! [module]

//! [module_base]
/// A layer of two tensors: it derives from ModuleBase, and gives its work to call().
struct Mixer : nn::ModuleBase {
  nn::Linear gate;
  ParameterPtr scale;  // [D]
  Mixer(const nn::Build& b, std::int64_t width)
      : ModuleBase(b),
        gate(b / "gate", width, {width}, nn::Split::none, {}),
        scale(b.parameter("scale", {width}, {.tp = b.per_position_placement()}, nn::Init::ones())) {}
  Tensor operator()(const Tensor& x, const Tensor& y) {  // [.., D], [.., D] -> [.., D]
    return call([&] { return x + sigmoid(gate(x)) * scale->value() * y; });
  }
};
//! [module_base]

//! [build]
/// A Build for one rank: weights in f32 on the CPU, initialised from a seed.
nn::Build one_rank() {
  const auto mesh = std::make_shared<const DeviceMesh>(self_group(), MeshShape{});
  return {mesh, DType::f32, /*seed=*/7};
}
//! [build]

TEST_CASE("reference: modules") {
  const nn::Build b = one_rank();
  Block block(b / "block", 8);
  Mixer mixer(b / "mixer", 8);
  const Tensor x = Tensor::randn({2, 5, 8}, 1);
  //! [module_use]
  const Tensor y = mixer(block(x), x);  // call a module like a function
  fmt::print("{}", block);              // its tree, with shapes and numbers of parameters
  for (const auto& [name, parameter] : block.named_parameters())
    fmt::print("{} {}\n", name, parameter->global_shape);  // norm.weight [8]
  nn::freeze(block.norm);                                  // before optimizers are made
  backward(sum(square(y)));
  nn::zero_grad(block);
  //! [module_use]
  CHECK(y.shape() == x.shape());
}

TEST_CASE("reference: layers") {
  const nn::Build b = one_rank();
  //! [linear]
  nn::Linear up(b / "up", 8, {32}, nn::Split::out, {.weight_init = nn::Init::kaiming_normal()});
  nn::Linear down(b / "down", 32, {8}, nn::Split::in, {.bias = false});
  const Tensor x = Tensor::randn({2, 5, 8}, 1);
  const Tensor y = down(relu(up(x)));  // [2, 5, 8]; with tp ranks, each has 32 / tp of the features in between
  //! [linear]
  CHECK(y.shape() == x.shape());

  //! [attention_layer]
  nn::Attention attention(b / "attention", {.width = 8, .heads = 4, .kv_heads = 2, .rope = nn::Rotary{}});
  const Tensor attended = attention(x);  // [2, 5, 8], causal
  //! [attention_layer]
  CHECK(attended.shape() == x.shape());

  //! [embedding]
  nn::VocabEmbedding words(b / "words", 100, 8, 0.02, false);
  const Tensor ids = Tensor::from({{1, 5, 99}, {0, 0, 7}}, DType::i32);
  const Tensor vectors = words(ids);                                                  // [2, 3, 8]
  const Tensor loss = nn::cross_entropy(words.logits(vectors), ids,                   // tied head
                                        {.slice = words.slice(), .scale = 1.0 / 6});  // the mean over 6 tokens
  //! [embedding]
  CHECK(loss.item() > 0);
}

TEST_CASE("reference: small tables, and attention from one tensor to another") {
  const nn::Build b = one_rank();
  //! [embedding_layer]
  nn::Embedding classes(b / "classes", 10, 8, {.padding = 0});
  const Tensor vectors = classes(Tensor::from({{1, 9, 0}, {4, 0, 0}}, DType::i32));  // [2, 3, 8]
  //! [embedding_layer]
  //! [multihead_attention]
  nn::MultiheadAttention cross(b / "cross", {.width = 8, .heads = 2});
  const Tensor lengths = Tensor::from({3, 1}, DType::i32);  // of the rows of `vectors`
  const Tensor y = cross(Tensor::randn({2, 5, 8}, 1), vectors, {.mask = nn::length_mask(lengths, 3)});  // [2, 5, 8]
  //! [multihead_attention]
  CHECK(y.shape() == Shape{2, 5, 8});
}

TEST_CASE("reference: images and sequences") {
  const nn::Build b = one_rank();
  //! [conv]
  nn::Sequential net(b / "net");
  net.add<nn::Conv2d>(3, 16, std::array<std::int64_t, 2>{3, 3}, nn::Conv2dLayerOptions{.padding = {1, 1}});
  net.add<nn::BatchNorm2d>(16);
  net.add(relu);  // any function of one tensor
  net.add<nn::MaxPool2d>();
  const Tensor y = net(Tensor::randn({4, 3, 8, 8}, 1));  // [4, 16, 4, 4]
  //! [conv]
  CHECK(y.shape() == Shape{4, 16, 4, 4});

  //! [lstm]
  nn::Lstm lstm(b / "lstm", {.input = 8, .hidden = 16, .layers = 2, .bidirectional = true});
  const auto [outputs, state] = lstm.run(Tensor::randn({4, 10, 8}, 2));  // [4, 10, 32], and the final states
  //! [lstm]
  CHECK(outputs.shape() == Shape{4, 10, 32});
}

TEST_CASE("reference: containers and experts") {
  const nn::Build b = one_rank();
  Tensor x = Tensor::randn({2, 5, 8}, 1);
  //! [module_list]
  nn::ModuleList<Block> blocks(b / "blocks", 4, [](const nn::Build& block, int) {
    return std::make_unique<Block>(block, 8);  // "blocks.0.norm.weight", ..
  });
  for (Block& block : blocks) x = block(x);
  //! [module_list]
  CHECK(blocks.size() == 4);

  //! [moe]
  nn::Moe mixture(b / "mixture", {.expert = {.width = 8, .hidden = 32}, .experts = {.count = 4, .top_k = 2}});
  b.run_state()->step_sequences = 2;  // in the global batch: the loss that balances experts is a mean over them
  const Tensor y = x + mixture(x);    // each token through 2 of 4 experts, which may be on other ranks of ep
  //! [moe]
  CHECK(y.shape() == x.shape());
}

TEST_CASE("reference: losses") {
  const Tensor scores = Tensor::randn({4, 10}, 1), x = Tensor::randn({4, 3}, 2), y = Tensor::randn({4, 3}, 3);
  const Tensor labels = Tensor::from({1, 9, 0, 3}, DType::i32);
  //! [losses]
  const Tensor a = nn::cross_entropy(scores, labels, {.smoothing = 0.1, .scale = 1.0 / 4});  // a mean over 4 rows
  const Tensor b = nn::mse_loss(x, y, 1.0 / 12);                                             // a mean over 12 elements
  //! [losses]
  CHECK(a.item() > 0);
  CHECK(b.item() == doctest::Approx(mean(square(x - y)).item()));
}

TEST_CASE("reference: weights in a file") {
  const testing::TempFolder folder;
  const std::filesystem::path path = folder.path() / "block.safetensors";
  Block block(one_rank() / "block", 8), other(one_rank() / "other", 8);
  //! [weights]
  nn::save_weights(block, path);  // safetensors: Python reads it, and every mesh
  const nn::LoadReport report = nn::load_weights(other, path);
  CHECK(report.loaded.size() == 6);
  //! [weights]
}

}  // namespace reference_modules
