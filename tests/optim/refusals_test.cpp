// Mistakes in the use of parameters, optimizers and GradSync are refused where they are made.
#include "nn/linear.h"
#include "optim/optimizer.h"
#include "parallel/data_parallel/grad_sync.h"
#include "parallel/data_parallel/gradient_norm.h"
#include "parallel/zero/zero.h"
#include "tests/support/errors.h"
#include "tests/support/mesh.h"

using namespace trireme;
using namespace trireme::testing;

namespace optim_refusals_test {
namespace {

/// Two layers, of which forward uses the first.
struct TwoLayers {
  nn::Build build{std::make_shared<const DeviceMesh>(self_group(), MeshShape{}), DType::f32, 1};
  nn::Linear used{build / "used", 3, {2}, nn::Split::none, {.bias = false}};
  nn::Linear unused{build / "unused", 3, {2}, nn::Split::none, {.bias = false}};

  const ParameterList& parameters() const { return build.parameters(); }
  Tensor loss() { return sum(used(Tensor::full({4, 3}, 1))); }
};

}  // namespace

TEST_CASE("a parameter without a gradient is refused by name") {
  TwoLayers model;
  const auto sgd = optim::make_sgd(model.parameters(), {});
  backward(model.loss());
  const Tensor before = clone(model.parameters()[1]->local);
  const std::string said = error_of([&] { sgd->step(0.1, 1.0); }, ExitCode::internal);
  CHECK(says(said, "trireme: [optimizer] unused.weight [2, 3] has no gradient: no backward has reached it"));
  CHECK(says(said,
             "use it in forward, call zero_grad() of all parameters before backward, make a GradSync, or freeze it"));
  CHECK(says(error_of([&] { gradient_norm(model.parameters(), model.build.mesh()); }, ExitCode::internal),
             "[gradient_norm] unused.weight [2, 3] has no gradient"));
  CHECK(same_bits(model.parameters()[1]->local, before));
}

TEST_CASE("a refused step changes nothing, and may be made again") {
  TwoLayers model;
  const auto sgd = optim::make_sgd(model.parameters(), {});
  backward(model.loss());
  const Tensor before = clone(model.parameters()[0]->local);
  CHECK(!error_of([&] { sgd->step(0.1, 1.0); }).empty());
  CHECK(same_bits(model.parameters()[0]->local, before));
  CHECK(sgd->steps() == 0);
}

TEST_CASE("a GradSync gives unused parameters a gradient of zero") {
  TwoLayers model;
  GradSync sync(model.parameters(), model.build.mesh());
  const auto sgd = optim::make_sgd(model.parameters(), {});
  backward(model.loss());
  sync.finish();
  CHECK(gradient_norm(model.parameters(), model.build.mesh()) > 0);
  const Tensor before = clone(model.parameters()[1]->local);
  sgd->step(0.1, 1.0);
  CHECK(same_bits(model.parameters()[1]->local, before));
}

TEST_CASE("to freeze or unfreeze is refused while a GradSync has the parameter; an optimizer needs to know before") {
  TwoLayers model;
  Parameter& frozen = *model.parameters()[1];
  {
    const GradSync sync(model.parameters(), model.build.mesh());
    CHECK(says(error_of([&] { nn::freeze(model.unused); }, ExitCode::usage),
               "[parameter] unused.weight is to be frozen while a GradSync or Zero sums its gradient"));
    CHECK(says(error_of([&] { nn::zero_grad(model.used); }, ExitCode::usage),
               "[zero_grad] a GradSync or Zero has the gradient of used.weight"));
  }
  nn::freeze(model.unused);
  CHECK(says(error_of([&] { frozen.leaf(); }, ExitCode::internal),
             "unused.weight [2, 3] cannot have a gradient, as it is frozen or was taken off the tape"));
  const auto sgd = optim::make_sgd(model.parameters(), {});
  backward(model.loss());
  sgd->step(0.1, 1.0);
  nn::unfreeze(model.unused);
  CHECK(says(error_of([&] { sgd->step(0.1, 1.0); }, ExitCode::usage),
             "[optimizer] unused.weight was frozen when the optimizer was made, and has no state"));
}

TEST_CASE("a step between forward and backward is refused by the operation that needs the weight") {
  TwoLayers model;
  GradSync sync(model.parameters(), model.build.mesh());
  const auto sgd = optim::make_sgd(model.parameters(), {});
  const Tensor x = Tensor::full({4, 3}, 1);
  Tensor input = x.detach();
  require_grad(input);
  for (int step = 0; step < 2; ++step) {
    sync.zero_grad();
    backward(sum(model.used(input)));
    sync.finish();
    sgd->step(0.1, 1.0);
  }
  const Tensor loss = sum(model.used(input));
  sgd->step(0.1, 1.0);
  CHECK(says(error_of([&] { backward(loss); }, ExitCode::internal), "[linear] input 1 [2, 3] was written to"));
}

TEST_CASE("steps of GradSync out of order are refused") {
  TwoLayers model;
  GradSync sync(model.parameters(), model.build.mesh());
  backward(model.loss());
  CHECK(says(error_of([&] { sync.zero_grad(); }, ExitCode::internal),
             "[grad_sync] rank 0 (dp=0,tp=0,pp=0): zero_grad() after a backward whose gradients were not summed"));
  sync.finish();
  CHECK(says(error_of([&] { backward(model.loss()); }, ExitCode::internal),
             "used.weight gets a gradient after finish(), which would be added to the sum over ranks"));
  sync.zero_grad();
  backward(model.loss());
  sync.finish();
  CHECK(says(error_of([&] { GradSync(model.parameters(), model.build.mesh()); }, ExitCode::internal),
             "used.weight has a GradSync already"));
}

TEST_CASE("a 16-bit weight that was changed beside the optimizer's copy is refused, until the copy is read again") {
  const nn::Build b(std::make_shared<const DeviceMesh>(self_group(), MeshShape{}), DType::bf16, 1);
  nn::Linear layer(b / "layer", 3, {2}, nn::Split::none, {.bias = false});
  const auto sgd = optim::make_sgd(b.parameters(), {});
  const Tensor x = Tensor::full({1, 3}, 1, DType::bf16);
  Tensor weight = b.parameters()[0]->local.detach();
  const auto step = [&] {
    zero_grad(b.parameters());
    backward(sum(layer(x)));
    sgd->step(0);  // weights stay as they are
  };
  static_cast<void>(weight.raw());  // counts as a write, and changes nothing
  step();
  for (int times = 0; times < 2; ++times) {  // before the first step, and between steps
    copy(Tensor::full({2, 3}, 0.5 + times, DType::bf16), weight);
    const Tensor changed = clone(weight);
    const std::string said = error_of(step, ExitCode::usage);
    CHECK(
        says(said, "trireme: [optimizer] layer.weight was changed since the optimizer was made or made its last step"));
    CHECK(says(said, fmt::format("element 0 is {}, and ", 0.5 + times)));
    CHECK(says(said, "change weights before the optimizer is made, or call its read_weights() after the change"));
    CHECK(same_bits(weight, changed));
    sgd->read_weights();
    step();
    CHECK(same_bits(weight, changed));
  }
}

TEST_CASE("a changed 16-bit weight is refused with ZeRO too, whose own gathers are no change") {
  for (const int stage : {0, 1, 2})
    run_mesh("dp=2", [&](const MeshPtr& mesh) {
      const nn::Build b(mesh, DType::bf16, 1);
      nn::Linear layer(b / "layer", 3, {2}, nn::Split::none, {.bias = false});
      const auto sums = make_data_parallel(b.parameters(), b.units(), *mesh, {.stage = stage});
      const auto adamw = optim::make_adamw(sums->shards(), {});
      adamw->attach(*sums);
      const auto step = [&] {
        sums->zero_grad(1);
        sums->last_microbatch(true);
        backward(sum(layer(Tensor::full({1, 3}, 1, DType::bf16))));
        sums->finish();
        adamw->step(0.1);
      };
      for (int i = 0; i < 3; ++i) step();
      sums->finish_gathers();
      Tensor weight = b.parameters()[0]->local.detach();
      copy(Tensor::full({2, 3}, 7, DType::bf16), weight);
      CHECK(says(error_of(step, ExitCode::usage), "[optimizer] layer.weight was changed since the optimizer"));
    });
}

TEST_CASE("layers that are made after the optimizer or the GradSync, and used, are refused") {
  run_mesh("dp=2", [](const MeshPtr& mesh) {
    const nn::Build b(mesh, DType::f32, 1);
    nn::Linear first(b / "first", 3, 3);
    GradSync sync(b.parameters(), *mesh);
    const auto sgd = optim::make_sgd(b.parameters(), {});
    nn::Linear late(b / "late", 3, 2);
    const Tensor x = Tensor::ones({1, 3});
    backward(sum(first(x)));
    sync.finish();
    sgd->step(0.1);  // not used yet
    sync.zero_grad();
    backward(sum(late(first(x))));
    CHECK(says(error_of([&] { sync.finish(); }, ExitCode::usage),
               "trireme: [grad_sync] late.weight was made after the GradSync, which does not sum its gradient"));
    const ParameterList later = (b / "late").parameters_below();
    GradSync second(later, *mesh);
    backward(sum(late(first(x))));
    sync.finish();
    second.finish();
    const std::string said = error_of([&] { sgd->step(0.1); }, ExitCode::usage);
    CHECK(says(said, "trireme: [optimizer] late.weight was made after the optimizer, which does not update it"));
    CHECK(says(said, "make the optimizer after the last layer, make a second one of the new parameters, or freeze"));
    {
      const auto another = optim::make_sgd(later, {});
      sgd->step(0.1);
      another->step(0.1);
    }
    CHECK_THROWS_AS(sgd->step(0.1), Error);
  });
}

TEST_CASE("settings and lists that cannot be meant are refused") {
  TwoLayers model;
  const auto adamw = [&](const optim::AdamWConfig& config) {
    return error_of([&] { optim::make_adamw(model.parameters(), config); }, ExitCode::usage);
  };
  CHECK(says(adamw({.beta1 = 1}), "[adamw] beta1 is 1; expected 0 <= beta1 < 1"));
  CHECK(says(adamw({.beta2 = -0.1}), "[adamw] beta2 is -0.1"));
  CHECK(says(adamw({.eps = -1}), "[adamw] eps is -1"));
  CHECK(says(adamw({.weight_decay = -1}), "[adamw] weight_decay is -1"));
  CHECK(says(error_of([&] { optim::make_sgd(model.parameters(), {.momentum = 1.5}); }, ExitCode::usage),
             "[sgd] momentum is 1.5; expected 0 <= momentum < 1"));
  CHECK(says(error_of([&] { optim::make_sgd(model.parameters(), {.nesterov = true}); }, ExitCode::usage),
             "[sgd] Nesterov's rule looks ahead along the momentum, got momentum 0; expected above 0"));
  CHECK(says(error_of([&] { optim::make_lion(model.parameters(), {.beta2 = 1}); }, ExitCode::usage),
             "[lion] beta2 is 1; expected 0 <= beta2 < 1"));
  CHECK(says(error_of([] { optim::make_sgd(ParameterList(), {}); }, ExitCode::internal),
             "[optimizer] the list of parameters is empty"));
  CHECK(says(error_of([] { optim::make_sgd(ParameterList{nullptr}, {}); }, ExitCode::internal),
             "[optimizer] the list has a null parameter"));
  ParameterList twice = model.parameters();
  twice.push_back(twice.front());
  CHECK(says(error_of([&] { optim::make_sgd(twice, {}); }, ExitCode::internal),
             "[optimizer] used.weight is twice in the list"));
  CHECK(says(error_of([&] { GradSync(twice, model.build.mesh()); }, ExitCode::internal),
             "[grad_sync] used.weight is twice in the list"));
  const auto sgd = optim::make_sgd(model.parameters(), {});
  for (const double lr : {-0.1, std::nan("")})
    CHECK(says(error_of([&] { sgd->step(lr, 1.0); }, ExitCode::internal), "[optimizer] the learning rate is "));
  CHECK(says(error_of([&] { sgd->step(0.1, std::nan("")); }, ExitCode::numerical), "[optimizer] gradients are to be "));
}

TEST_CASE("a gradient that does not fit, or is not finite, is refused before any weight changes") {
  TwoLayers model;
  for (const ParameterPtr& p : model.parameters()) p->grad() = Tensor::zeros({1});
  const auto sgd = optim::make_sgd(model.parameters(), {});
  CHECK(says(error_of([&] { sgd->step(0.1, 1.0); }, ExitCode::internal),
             "[optimizer] the gradient of used.weight is f32 [1]; expected a dense f32 [2, 3]"));
  for (const double norm : {std::nan(""), std::numeric_limits<double>::infinity()})
    CHECK(says(error_of([&] { sgd->step(0.1, clip_factor(norm, 1.0)); }, ExitCode::numerical), "multiplied by nan"));
}

TEST_CASE("an optimizer refuses gradients that were not summed over ranks, and changes nothing") {
  run_mesh("dp=2", [](const MeshPtr& mesh) {
    const nn::Build b(mesh, DType::f32, 1);
    nn::Linear layer(b / "layer", 3, 2);
    const auto sgd = optim::make_sgd(b.parameters(), {});
    const auto refused = [&](std::string_view why) {
      const Tensor before = clone(b.parameters()[0]->local);
      CHECK(says(error_of([&] { sgd->step(0.1); }, ExitCode::usage), why));
      CHECK(same_bits(b.parameters()[0]->local, before));
      CHECK(sgd->steps() == 0);
    };
    zero_grad(b.parameters());
    backward(sum(layer(Tensor::ones({1, 3}))));
    refused("[optimizer] the gradient of layer.weight is that of this rank's samples, as nothing adds it up");
    GradSync sync(b.parameters(), *mesh);
    backward(sum(layer(Tensor::ones({1, 3}))));
    refused("[optimizer] the gradient of layer.weight is that of this rank's samples: GradSync::finish() was not");
    sync.finish();
    sgd->step(0.1);
  });
}

TEST_CASE("set_factors refuses a pattern that matches no parameter, or for the decay none with decay") {
  TwoLayers model;
  nn::Linear biased(model.build / "biased", 2, 2);
  const auto adamw = optim::make_adamw(model.parameters(), {});
  const auto error = [&](const char* lr, const char* decay) {
    return error_of([&] { adamw->set_factors({"lr", lr}, {"weight decay", decay}); }, ExitCode::usage);
  };
  CHECK(
      says(error("usde.*=0.1", ""), "[lr] no parameter has a name like 'usde.*'; expected names such as used.weight"));
  CHECK(says(error("used.*=0.1,x=2", ""), "[lr] no parameter has a name like 'x'"));
  CHECK(says(error("", "head=0"), "[weight decay] no parameter with weight decay has a name like 'head'"));
  CHECK(says(error("", "biased.bias=0"), "no parameter with weight decay has a name like 'biased.bias'"));
  adamw->set_factors({"lr", "used.*=0.1"}, {"weight decay", "*=0.5"});
  adamw->set_factors({"lr", "used.*=0.1"}, {"weight decay", ""}, model.build.mesh());
  run_mesh("pp=2", [](const MeshPtr& mesh) {  // a pattern for the other stage's parameter
    const nn::Build b(mesh, DType::f32, 1);
    nn::Linear layer(b / (mesh->is_first(Axis::pp) ? "first" : "second"), 3, 2);
    const auto sgd = optim::make_sgd(b.parameters(), {});
    sgd->set_factors({"lr", "first.*=0.1,second.*=2"}, {"weight decay", "first.weight=0"}, *mesh);
    CHECK_THROWS_AS(sgd->set_factors({"lr", "third.*=0.1"}, {"weight decay", ""}, *mesh), Error);
  });
}

}  // namespace optim_refusals_test
