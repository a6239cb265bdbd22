// Frozen parameters: no gradient, no update, and the same numbers for all that is still trained. Also zero_grad,
// clipping and the choice of parameters by name.
#include "nn/attention.h"
#include "nn/mlp.h"
#include "nn/moe.h"
#include "nn/vocab_embedding.h"
#include "optim/optimizer.h"
#include "parallel/data_parallel/grad_sync.h"
#include "parallel/data_parallel/gradient_norm.h"
#include "tests/support/errors.h"
#include "tests/support/mesh.h"

using namespace trireme;
using namespace trireme::testing;

namespace freeze_test {
namespace {

constexpr std::int64_t width = 8;

struct Net : nn::Module {
  nn::VocabEmbedding table;
  nn::LayerNorm norm;
  nn::Attention attention;
  nn::RmsNorm norm2;
  nn::Mlp mlp;
  nn::Moe moe;
  nn::Linear head;
  explicit Net(const nn::Build& b)
      : Module(b),
        table(b / "table", 11, width, 0.5, false),
        norm(b / "norm", width),
        attention(b / "attention", {.width = width, .heads = 2, .init_std = 0.5}),
        norm2(b / "norm2", width),
        mlp(b / "mlp", {.width = width, .hidden = 16, .init_std = 0.5}),
        moe(b / "moe", {.expert = {.width = width, .hidden = 16, .init_std = 0.5}, .experts = {.count = 4}}),
        head(b / "head", width, {3}, nn::Split::none, {}) {}
  Tensor forward(const Tensor& ids) override {  // [B, T] -> [B, T, 3]
    Tensor x = table(ids);
    x = x + attention(norm(x));
    x = x + mlp(norm2(x));
    return head(x + moe(x));
  }
};

nn::Build build(const MeshPtr& mesh, DType dtype = DType::f32) {
  const nn::Build b(mesh, dtype, 7);
  b.run_state()->step_sequences = 2;
  return b;
}
nn::Build build(DType dtype = DType::f32) {
  return build(std::make_shared<const DeviceMesh>(self_group(), MeshShape{}), dtype);
}

Tensor loss(Net& net) { return sum(square(net(random_ids({2, 5}, 1, 0, 11)))); }

std::map<std::string, Tensor> gradients(Net& net) {
  backward(loss(net));
  std::map<std::string, Tensor> all;
  for (const ParameterPtr& p : trained(net.parameters())) all[p->name] = p->grad();
  return all;
}

}  // namespace

TEST_CASE("whatever is frozen, the gradients of the rest have the same bits") {
  Net whole(build());
  randomise(whole.parameters(), 0.1);
  const auto expected = gradients(whole);
  for (const char* pattern :
       {"table.*", "norm.*", "attention.*", "*.weight", "*.bias", "mlp.up.*", "moe.*", "head.*"}) {
    CAPTURE(pattern);
    Net net(build());
    randomise(net.parameters(), 0.1);
    const ParameterList frozen = matching(net.parameters(), pattern);
    set_requires_grad(frozen, false);
    const auto got = gradients(net);
    CHECK(got.size() == expected.size() - frozen.size());
    for (const auto& [name, gradient] : got) CHECK_MESSAGE(same_bits(gradient, expected.at(name)), name);
    set_requires_grad(frozen, true);  // and as before once they are trained again
    zero_grad(net.parameters());
    for (const auto& [name, gradient] : gradients(net)) CHECK_MESSAGE(same_bits(gradient, expected.at(name)), name);
  }
}

TEST_CASE("a recomputed block after frozen layers still gets its gradients") {
  Net net(build());
  randomise(net.parameters(), 0.1);
  const auto expected = gradients(net);
  zero_grad(net.parameters());
  nn::freeze(net.table);
  const Tensor x = net.table(random_ids({2, 5}, 1, 0, 11));
  const Tensor y = recompute(
      [&](const Tensor& in) {
        Tensor h = in + net.attention(net.norm(in));
        h = h + net.mlp(net.norm2(h));
        return net.head(h + net.moe(h));
      },
      x);
  backward(sum(square(y)));
  for (const ParameterPtr& p : trained(net.parameters())) CHECK(same_bits(p->grad(), expected.at(p->name)));
}

TEST_CASE("optimizers leave frozen parameters as they are, decay included, and keep no state for them") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Net net(build(dtype));
    nn::freeze(net.attention);
    const auto adamw = optim::make_adamw(net.parameters(), {.weight_decay = 0.5});
    std::size_t moments = 0;
    for (const StateTensor& state : adamw->state()) moments += state.name == "m" ? 1 : 0;
    CHECK(moments == trained(net.parameters()).size());
    CHECK(adamw->weights().size() == net.parameters().size());  // a checkpoint stores all
    std::map<std::string, Tensor> before;
    for (const ParameterPtr& p : net.parameters()) before[p->name] = clone(p->local);
    zero_grad(net.parameters());
    backward(loss(net));
    CHECK(gradient_norm(net.parameters(), net.build().mesh()) > 0);
    adamw->step(0.1, 1.0);
    for (const ParameterPtr& p : net.parameters())
      CHECK_MESSAGE(same_bits(p->local.detach(), before[p->name]) == !p->requires_grad(), p->name);
  }
}

TEST_CASE("GradSync sums the gradients of the others, on a mesh as on one rank") {
  Net one(build());
  randomise(one.parameters(), 0.1);
  nn::freeze(one.mlp);
  nn::freeze(one.table);
  const auto expected = gradients(one);
  const double norm = gradient_norm(one.parameters(), one.build().mesh());
  for (const std::string text : {"tp=2", "dp=2", "dp=2,ep=2"}) {
    CAPTURE(text);
    run_mesh(text, [&](const MeshPtr& mesh) {
      Net net(build(mesh));
      randomise(net.parameters(), 0.1);
      nn::freeze(net.mlp);
      nn::freeze(net.table);
      GradSync sync(net.parameters(), *mesh);
      const Tensor ids = random_ids({2, 5}, 1, 0, 11);
      const std::int64_t dp = mesh->size(Axis::dp);
      backward(sum(square(net(view::slice(ids, 0, mesh->coord(Axis::dp) * 2 / dp, 2 / dp)))));
      sync.finish();
      for (const ParameterPtr& p : trained(net.parameters()))
        CHECK_MESSAGE(relative_difference(whole(p->grad(), *p, *mesh),
                                          view::slice(expected.at(p->name), 0, 0, p->logical_rows)) < 2e-6,
                      p->name);
      CHECK(std::abs(gradient_norm(net.parameters(), *mesh) / norm - 1) < 1e-6);
    });
  }
}

TEST_CASE("zero_grad makes gradients of zero, also of parameters that no backward reaches") {
  const nn::Build b = build();
  nn::Linear used(b / "used", 3, {2}, nn::Split::none, {}), unused(b / "unused", 3, {2}, nn::Split::none, {});
  const auto sgd = optim::make_sgd(b.parameters(), {});
  Tensor first;
  for (int step = 0; step < 2; ++step) {
    zero_grad(b.parameters());
    backward(sum(used(Tensor::full({4, 3}, 1))));
    if (step == 0) first = clone(used.parameter("weight")->grad());
    CHECK(same_bits(used.parameter("weight")->grad(), first));
    CHECK(same_bits(unused.parameter("weight")->grad(), Tensor::zeros({2, 3})));
    sgd->step(0, 1.0);
  }
}

TEST_CASE("clip_gradients brings the norm down, and refuses one that is not finite") {
  Net net(build());
  const DeviceMesh& mesh = net.build().mesh();
  backward(loss(net));
  const double norm = gradient_norm(net.parameters(), mesh);
  CHECK(clip_gradients(net.parameters(), mesh, 2 * norm) == norm);
  CHECK(gradient_norm(net.parameters(), mesh) == norm);
  CHECK(clip_gradients(net.parameters(), mesh, norm / 4) == norm);
  CHECK(std::abs(gradient_norm(net.parameters(), mesh) / norm - 0.25) < 1e-6);
  net.parameters()[0]->grad().data<float>()[0] = std::nanf("");
  CHECK(says(error_of([&] { clip_gradients(net.parameters(), mesh, 1); }, ExitCode::numerical),
             "[clip_gradients] the norm of the gradients is nan"));
  CHECK(says(error_of([&] { clip_gradients(net.parameters(), mesh, 0); }, ExitCode::usage), "expected more than 0"));
}

TEST_CASE("parameters are chosen by patterns of names") {
  Net net(build());
  const auto count = [&](const char* pattern) { return matching(net.parameters(), pattern).size(); };
  CHECK(count("*") == net.parameters().size());
  CHECK(count("norm.*") == 2);
  CHECK(count("norm?.weight") == 1);
  CHECK(count("norm*.weight") == 2);
  CHECK(count("mlp.*.bias") == 2);
  CHECK(count("head.weight") == 1);
  CHECK(matching(net.parameters(), "nothing", true).empty());
  CHECK(says(error_of([&] { count("haed.weight"); }, ExitCode::usage),
             "a name like 'haed.weight'; expected one or more; "
             "the nearest: head.weight"));
}

}  // namespace freeze_test
