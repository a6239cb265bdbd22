// Sequential and ModuleList.
#include "nn/containers.h"

#include "nn/linear.h"
#include "nn/mlp.h"
#include "nn/summary.h"
#include "tests/support/errors.h"
#include "tests/support/mesh.h"

using namespace trireme;
using namespace trireme::testing;

namespace containers_test {
namespace {

nn::Build build() { return {std::make_shared<const DeviceMesh>(self_group(), MeshShape{}), DType::f64, 7}; }

void add_layers(nn::Sequential& net) {
  net.add<nn::Linear>(4, Shape{6}, nn::Split::none, nn::LinearOptions{});
  net.add([](const Tensor& x) { return gelu(x); });
  net.add<nn::Linear>(6, Shape{3}, nn::Split::none, nn::LinearOptions{});
}

}  // namespace

TEST_CASE("a Sequential is its modules and functions one after the other, named by their numbers") {
  const nn::Build b = build();
  nn::Sequential net(b / "net");
  add_layers(net);
  CHECK(net.size() == 3);
  CHECK(b.parameters()[0]->name == "net.0.weight");
  CHECK(net.parameter("2.bias")->name == "net.2.bias");
  const Tensor x = random({5, 4}, 1);
  CHECK(same_bits(net(x).detach(), net[2](gelu(net[0](x))).detach()));
  CHECK(says(error_of([&] { net[1]; }, ExitCode::usage), "[Sequential] number 1 of net is a function"));
  CHECK(says(error_of([&] { net[3]; }, ExitCode::usage), "net has no module 3; expected less than 3"));
  CHECK(says(error_of([&] { net(random({5, 3}, 1)); }, ExitCode::internal), "; in the layer 'net.0'"));
  CHECK(says(error_of([&] { net.add(std::function<Tensor(const Tensor&)>()); }, ExitCode::internal),
             "an empty function"));
  CHECK(says(nn::summary(net), "net         Sequential"));
}

TEST_CASE("an empty Sequential returns its input") {
  nn::Sequential net(build());
  const Tensor x = random({2, 3}, 1);
  CHECK(same_bits(net(x), x));
}

TEST_CASE("a Sequential that begins a unit is one unit") {
  const nn::Build b = build();
  nn::Sequential net((b / "net").unit());
  add_layers(net);
  CHECK(b.units().all().size() == 1);
  CHECK(b.units().all().front()->parameters.size() == 4);
  const Tensor x = random({5, 4}, 1);
  error_of([&] { net[0](x); }, ExitCode::internal);  // only a call of the Sequential begins a use
  CHECK(net(x).shape() == Shape{5, 3});
}

TEST_CASE("a Sequential of split layers computes on a mesh what it computes on one rank") {
  const Tensor x = random({5, 4}, 1);
  const auto result = [&](const MeshPtr& mesh) {
    nn::Sequential net(nn::Build(mesh, DType::f64, 7) / "net");
    net.add<nn::Linear>(4, Shape{6}, nn::Split::out, nn::LinearOptions{.init_std = 0.5});
    net.add([](const Tensor& h) { return gelu(h); });
    net.add<nn::Linear>(6, Shape{3}, nn::Split::in, nn::LinearOptions{.init_std = 0.5});
    return net(x).detach();
  };
  const Tensor expected = result(std::make_shared<const DeviceMesh>(self_group(), MeshShape{}));
  run_mesh("tp=2", [&](const MeshPtr& mesh) { CHECK(relative_difference(result(mesh), expected) < 1e-14); });
}

TEST_CASE("a ModuleList makes, finds and iterates over its modules") {
  const nn::Build b = build();
  nn::ModuleList<nn::Linear> list(b / "layers", 3, [](const nn::Build& layer, int i) {
    return std::make_unique<nn::Linear>(layer, 2 + i, Shape{3 + i}, nn::Split::none, nn::LinearOptions{});
  });
  list.add(5, Shape{1}, nn::Split::none, nn::LinearOptions{});
  CHECK(list.size() == 4);
  Tensor x = random({5, 2}, 1);
  for (nn::Linear& layer : list) x = layer(x);
  CHECK(x.shape() == Shape{5, 1});
  CHECK(list[3].name() == "layers.3");
  CHECK(list.parameters().size() == 8);
  CHECK(says(error_of([&] { list[4]; }, ExitCode::usage), "[ModuleList] layers has no module 4; expected less than 4"));
  nn::ModuleList<> mixed(b / "mixed");
  mixed.add<nn::LayerNorm>(4);
  mixed.add<nn::Mlp>(nn::MlpOptions{.width = 4, .hidden = 8});
  CHECK(mixed[1](mixed[0](random({2, 1, 4}, 1))).shape() == Shape{2, 1, 4});
  CHECK(says(nn::summary(mixed), "ModuleList<"));
}

TEST_CASE("modules of a ModuleList may be units, each announced when it is called") {
  const nn::Build b = build();
  nn::ModuleList<nn::Linear> list(b / "layers", 2, [](const nn::Build& layer, int) {
    return std::make_unique<nn::Linear>(layer.unit(), 3, Shape{3}, nn::Split::none, nn::LinearOptions{});
  });
  CHECK(b.units().all().size() == 2);
  Tensor x = random({5, 3}, 1);
  for (nn::Linear& layer : list) x = layer(x);
  CHECK(x.shape() == Shape{5, 3});
}

}  // namespace containers_test
