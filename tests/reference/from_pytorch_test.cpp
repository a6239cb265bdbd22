// The lines of docs/from_pytorch.md, run. PyTorch has computed what same() compares with:
// tests/golden/make_from_pytorch.py.
#include <doctest/doctest.h>
#include <fmt/core.h>

#include <chrono>

#include "autograd/conv.h"
#include "autograd/engine.h"
#include "autograd/group_norm.h"
#include "autograd/pool.h"
#include "data/dataset.h"
#include "data/prefetch.h"
#include "nn/batch_norm.h"
#include "nn/containers.h"
#include "nn/conv.h"
#include "nn/cross_entropy.h"
#include "nn/embedding.h"
#include "nn/losses.h"
#include "nn/mlp.h"
#include "nn/multihead_attention.h"
#include "nn/recurrent.h"
#include "nn/summary.h"
#include "nn/weights.h"
#include "optim/optimizer.h"
#include "parallel/data_parallel/grad_sync.h"
#include "parallel/data_parallel/gradient_norm.h"
#include "tests/support/files.h"
#include "tests/support/golden.h"

using namespace trireme;

namespace from_pytorch {

/// The inputs of the tables: small numbers that f32 holds exactly.
Tensor numbers(const Shape& shape) {
  Tensor result = Tensor::empty(shape);
  for (std::int64_t i = 0; i < result.count(); ++i)
    result.data<float>()[i] = static_cast<float>(i * 7 % 11 - 5) / 4 + 0.125F;
  return result;
}

const Tensor x = numbers({2, 3}), w = numbers({3, 4}), k = numbers({2, 3, 4}), images = numbers({2, 3, 6, 6}),
             kernel = numbers({4, 3, 3, 3}), ids = Tensor::from({2, 0}, DType::i32);

/// A line of PyTorch, and the value of Trireme's line in the same row.
void same(const char* line, const Tensor& got) {
  const testing::GoldenFile golden("from_pytorch");
  REQUIRE_MESSAGE(golden.has(line), line);
  const Tensor expected = golden.read(line);
  CHECK_MESSAGE(got.shape() == expected.shape(), line);
  CHECK_MESSAGE(testing::relative_difference(cast(got, DType::f64), expected) < 3e-7, line);
}
void same(const char* line, double got) { same(line, Tensor::full({}, got, DType::f64)); }

TEST_CASE("from PyTorch: tensors") {
  same("torch.zeros(2, 3)", Tensor::zeros({2, 3}));
  same("torch.full((2, 3), 7.0)", Tensor::full({2, 3}, 7.0));
  same("torch.tensor([[1.0, 2.0], [3.0, 4.0]])", Tensor::from({{1, 2}, {3, 4}}));
  same("torch.tensor([1, 5], dtype=torch.int32)", Tensor::from({1, 5}, DType::i32));
  same("torch.arange(5, dtype=torch.int32)", Tensor::arange(5));
  same("torch.arange(1.0, 2.0, 0.25)", Tensor::arange(1.0, 2.0, 0.25));
  same("x.to(torch.bfloat16)", cast_to(x, DType::bf16));
  same("x.detach().clone()", clone(x));
  same("x.detach().contiguous()", contiguous(x));
  same("x.reshape(3, -1)", reshape(x, {3, -1}));
  same("x.transpose(0, 1)", transpose(x, 0, 1));
  same("k.permute(2, 0, 1)", permute(k, {2, 0, 1}));
  same("k.flatten(1)", flatten(k, 1));
  same("x.unsqueeze(1)", unsqueeze(x, 1));
  same("x[:, :1].squeeze(1)", squeeze(slice(x, 1, 0, 1), 1));
  same("x[:, 1:3]", slice(x, 1, 1, 2));
  same("x[:, -1]", select(x, 1, x.size(1) - 1));
  same("x[:1].expand(4, 3)", expand(slice(x, 0, 0, 1), {4, 3}));
  same("torch.cat([x, x], dim=1)", concat({x, x}, 1));
  same("torch.stack([x, x])", stack({x, x}));
  same("x.unbind(1)[2]", unbind(x, 1)[2]);
  same("k.split(3, dim=2)[1]", split(k, 3, 2)[1]);
  same("k.chunk(2, dim=2)[1]", chunk(k, 2, 2)[1]);
  same("F.pad(x, (1, 2), value=9.0)", pad(x, 1, 1, 2, 9.0));
  same("x.flip(1)", flip(x, 1));
}

TEST_CASE("from PyTorch: arithmetic") {
  same("x + 1", x + 1);
  same("1 / x", 1 / x);
  same("-x * x", -x * x);
  same("x ** 3", pow(x, 3));
  same("x.exp()", exp(x));
  same("x.abs().sqrt()", sqrt(abs(x)));
  same("x.sin() + x.cos()", sin(x) + cos(x));
  same("x.clamp(-1, 1)", clamp(x, -1, 1));
  same("x.clamp(min=0.5)", maximum(x, 0.5));
  same("ids * 2 + 1", ids * 2 + 1);
  same("torch.maximum(x, x * x)", maximum(x, x * x));
  same("(x > 0).float()", x > 0);
  same("(x == 2).float()", equal(x, 2));
  same("torch.where(x > 0, x, 0.5)", where(x > 0, x, 0.5));
  same("x.masked_fill(x > 0, -1)", masked_fill(x, x > 0, -1));
  same("x @ w", matmul(x, w));
  same("torch.einsum(\"bi,ij->bj\", x, w)", einsum("bi,ij->bj", {x, w}));
  same("F.linear(x, w.T)", linear(x, transpose(w, 0, 1), {}));
  same("F.relu(x)", relu(x));
  same("F.gelu(x)", gelu(x));
  same("F.gelu(x, approximate=\"tanh\")", gelu_tanh(x));
  same("F.silu(x)", silu(x));
  same("x.sigmoid()", sigmoid(x));
  same("x.softmax(-1)", softmax(x));
  same("x.log_softmax(0)", log_softmax(x, 0));
  same("x.logsumexp(1)", logsumexp(x, 1));
  same("F.layer_norm(x, (3,))", layer_norm(x, Tensor::ones({3}), {}));
  same("F.rms_norm(x, (3,), eps=1e-5)", rms_norm(x, Tensor::ones({3})));
}

TEST_CASE("from PyTorch: reductions and indices") {
  same("x.sum()", sum(x));
  same("x.mean(1, keepdim=True)", mean(x, 1, true));
  same("k.sum((0, 2))", sum(k, {0, 2}));
  same("x.amax(1)", max(x, 1));
  same("x.var(1)", var(x, 1));
  same("x.std(1, correction=0)", sqrt(var(x, 1, 0)));
  same("x.norm()", norm(x));
  same("x.cumsum(1)", cumsum(x, 1));
  same("x.argmax(1)", argmax(x, 1));
  same("x.topk(2, dim=1).values", topk(x, 2, 1).values);
  same("k.gather(2, k.argmax(2, keepdim=True))", gather(k, 2, argmax(k, 2, true)));
  same("torch.zeros(2, 3).scatter_add(1, x.argmax(1, keepdim=True), x[:, :1])",
       scatter_add(Tensor::zeros({2, 3}), 1, argmax(x, 1, true), slice(x, 1, 0, 1)));
  same("w[ids]", gather_rows(w, ids));
  same("F.embedding(ids, w)", embedding(w, ids));
  same("F.one_hot(ids, 4)", one_hot(ids, 4));
  same("x.tolist()[1][2]", x.data<const float>()[5]);
  same("x.sum().item()", sum(x).item());
}

TEST_CASE("from PyTorch: losses and larger functions") {
  same("F.cross_entropy(x, ids)", nn::cross_entropy(x, ids, {.scale = 1.0 / 2}));
  same("F.cross_entropy(x, ids, label_smoothing=0.1)", nn::cross_entropy(x, ids, {.smoothing = 0.1, .scale = 1.0 / 2}));
  same("F.mse_loss(x, x * x)", nn::mse_loss(x, x * x, 1.0 / 6));
  same("F.smooth_l1_loss(x, x * x)", nn::smooth_l1_loss(x, x * x, 1.0 / 6));
  same("F.binary_cross_entropy_with_logits(x, x.sigmoid())",
       nn::binary_cross_entropy_with_logits(x, sigmoid(x), 1.0 / 6));
  same("F.kl_div(x.log_softmax(1), x.flip(1).softmax(1), reduction=\"batchmean\")",
       nn::kl_div(log_softmax(x, 1), softmax(flip(x, 1), 1), 1.0 / 2));
  same("F.scaled_dot_product_attention(k, k, k, is_causal=True)",
       squeeze(attention(unsqueeze(k, 2), unsqueeze(k, 2), unsqueeze(k, 2)), 2));
  same("F.conv2d(images, kernel, stride=2, padding=1)",
       conv2d(images, kernel, {}, {.stride = {2, 2}, .padding = {1, 1}}));
  same("F.max_pool2d(images, 2)", max_pool2d(images, {.kernel = {2, 2}}));
  same("F.adaptive_avg_pool2d(images, 1)", adaptive_avg_pool2d(images, {1, 1}));
  same("F.group_norm(images, 3)", group_norm(images, 3, Tensor::ones({3}), Tensor::zeros({3})));
}

TEST_CASE("from PyTorch: modules") {
  const testing::TempFolder folder;
  const std::filesystem::path path = folder / "net.safetensors";
  const nn::Build b(std::make_shared<const DeviceMesh>(self_group(), MeshShape{}), DType::f32, 7);
  const Tensor x = Tensor::randn({4, 8}, 1);

  nn::Linear fc(b / "fc", 8, {32}, nn::Split::none, {});
  nn::LayerNorm norm(b / "norm", 32);
  nn::Conv2d conv(b / "conv", 3, 16, {3, 3}, {.padding = {1, 1}});
  nn::BatchNorm2d bn(b / "bn", 16);
  CHECK(bn(conv(images)).shape() == Shape{2, 16, 6, 6});
  nn::Lstm lstm(b / "lstm", {.input = 8, .hidden = 32});
  nn::Gru gru(b / "gru", {.input = 8, .hidden = 32});
  nn::MultiheadAttention mha(b / "mha", {.width = 32, .heads = 4});
  nn::Embedding words(b / "words", 100, 8);
  nn::Dropout drop(b / "drop", 0.1);
  CHECK(lstm(words(Tensor::from({{1, 2, 3}}, DType::i32))).shape() == Shape{1, 3, 32});
  {
    const Tensor x = Tensor::randn({2, 3, 8}, 1), lengths = Tensor::from({3, 1}, DType::i32);
    gru.run(x, {}, lengths);
    CHECK(mha(gru(x), gru(x)).shape() == Shape{2, 3, 32});
  }

  nn::Sequential net(b / "net");
  net.add<nn::Linear>(8, Shape{32}, nn::Split::none, nn::LinearOptions{});
  net.add(relu);
  nn::Linear& block = net.add<nn::Linear>(32, Shape{3}, nn::Split::none, nn::LinearOptions{});
  Tensor y = net(x);
  CHECK(y.shape() == Shape{4, 3});
  fmt::print("{}", net);
  nn::count_elements(net.parameters());
  const ParameterPtr p = net.parameter("0.weight");
  net.parameter("0.weight");
  backward(sum(y));
  p->grad();
  int calls = 0;
  const auto hook = [&](const nn::Module&, const Tensor&, const Tensor&) { ++calls; };
  net[0].on_forward(hook);
  nn::save_weights(net, path);
  nn::load_weights(net, path);
  nn::load_weights(net, path, {.strict = false});
  {
    const Tensor x = Tensor::randn({4, 32}, 1);
    recompute([&](const Tensor& h) { return block(h); }, x);
  }
  nn::zero_grad(net);
  CHECK(sum(square(p->grad())).item() == 0);
  nn::freeze(net);
  net.eval();
  net.train();
  drop.eval();
  CHECK(sum(square(drop(norm(fc(x))) - norm(fc(x)))).item() == 0);
  net(x);
  CHECK(calls == 1);
}

TEST_CASE("from PyTorch: gradients and optimizers") {
  Tensor v = Tensor::from({1, 2, 3});
  require_grad(v);
  {
    const Tensor loss = sum(square(v));
    backward(loss);
    grad(v);
    const NoGrad guard;
    v -= 0.1 * grad(v);
  }
  CHECK(v.data<const float>()[2] == doctest::Approx(2.4));
  const Tensor y = 2.0 * v, dy = Tensor::ones({3});
  backward(y, dy);

  const nn::Build b(std::make_shared<const DeviceMesh>(self_group(), MeshShape{}), DType::f32, 7);
  nn::Sequential net(b / "net");
  net.add<nn::Linear>(8, Shape{32}, nn::Split::none, nn::LinearOptions{});
  net.add(relu);
  net.add<nn::Linear>(32, Shape{3}, nn::Split::none, nn::LinearOptions{});
  for (const ParameterPtr& p : matching(net.parameters(), "*.bias")) p->decay = false;
  optim::make_sgd(net.parameters(), {.momentum = 0.9});
  const auto optimizer = optim::make_adamw(net.parameters(), {.weight_decay = 0.1});
  optimizer->set_factors({"lr", "net.2.*=0.1"}, {"weight decay", ""});
  nn::zero_grad(net);
  backward(sum(square(net(Tensor::randn({4, 8}, 1)))));
  clip_gradients(net.parameters(), b.mesh(), 1.0);
  const double lr = 1e-3;
  optimizer->step(lr, 1.0);
  CHECK(optimizer->steps() == 1);
}

struct Net : nn::Module {
  nn::Linear in, out;
  explicit Net(const nn::Build& b)
      : Module(b),
        in(b / "in", 3, {64}, nn::Split::out, {.init_std = 1}),
        out(b / "out", 64, {1}, nn::Split::in, {.init_std = 0.1}) {}
  Tensor forward(const Tensor& x) override { return out(tanh(in(x))); }  // [B, 3] -> [B, 1]
};

TEST_CASE("from PyTorch: a training loop") {
  const Tensor x = Tensor::rand({256, 3}, 1), y = sum(x, 1, true);
  constexpr int steps = 60;
  double last = 1;
  run_thread_ranks(2, 1, std::chrono::seconds(30), [&](const std::shared_ptr<ProcessGroup>& world) {
    const auto mesh = std::make_shared<const DeviceMesh>(world, parse_mesh("dp=2", world->size()));
    const nn::Build b(mesh, DType::f32, /*seed=*/7);
    Net model(b);
    GradSync sync(b.parameters(), *mesh);  // sums gradients over dp
    const auto optimizer = optim::make_adamw(b.parameters(), {.weight_decay = 0.0});
    const auto data = std::make_shared<Dataset>(Dataset({{"x", x}, {"y", y}}, /*seed=*/1));
    Loader loader(data, {.global_batch = 32, .micro_batch = 16, .dp_rank = mesh->coord(Axis::dp), .dp_size = 2},
                  /*consumed=*/0, /*depth=*/4, /*workers=*/2);
    for (int step = 0; step < steps; ++step) {  // epochs follow one another: each has its own order
      const Batch batch = loader.next();        // this rank's 16 of the 32 samples
      sync.zero_grad();
      const Tensor loss = nn::mse_loss(model(batch["x"]), batch["y"], 1.0 / 32);  // 32: of both ranks
      sync.last_microbatch();                                                     // sums may begin during backward
      backward(loss);
      sync.finish();
      clip_gradients(b.parameters(), *mesh, 1.0);
      optimizer->step(1e-2, 1.0);
    }
    const Tensor difference = model(x) - y;
    if (world->rank() == 0) last = mean(square(difference)).item();
  });
  CHECK(last < 0.02);
}

}  // namespace from_pytorch
