// Zero refuses ranks whose models differ, and steps, norms and clipping before its sums.
#include "nn/linear.h"
#include "optim/optimizer.h"
#include "parallel/data_parallel/gradient_norm.h"
#include "parallel/zero/zero.h"
#include "tests/support/errors.h"
#include "tests/support/mesh.h"

using namespace trireme;
using namespace trireme::testing;

namespace summed_test {

TEST_CASE("Zero compares the ranks' models before it cuts them") {
  for (const int stage : {1, 2, 3}) {
    CAPTURE(stage);
    const Caught error = caught([&] {
      run_mesh("dp=2", [&](const MeshPtr& mesh) {
        const nn::Build b(mesh, DType::f32, 7 + static_cast<std::uint64_t>(mesh->rank()));
        nn::Linear layer((b / "layer").unit(), 16, 16);
        const Zero zero(b.parameters(), b.units(), *mesh, {.stage = stage});
      });
    });
    CHECK(error.code == ExitCode::desync);
    CHECK(says(error.message, "[same_model] ranks 0 and 1 have built different models: parameter 0 is layer.weight"));
  }
}

TEST_CASE("with Zero, norms and steps before finish() are refused, and so is clipping of parameters") {
  for (const char* mesh_text : {"dp=1", "dp=2"}) {
    for (const int stage : {1, 2, 3}) {
      CAPTURE(mesh_text);
      CAPTURE(stage);
      run_mesh(mesh_text, [&](const MeshPtr& mesh) {
        const nn::Build b(mesh, DType::f32, 7);
        nn::Linear layer((b / "layer").unit(), 16, 16);
        Zero zero(b.parameters(), b.units(), *mesh, {.stage = stage});
        CHECK(says(error_of([&] { const Zero second(b.parameters(), b.units(), *mesh, {.stage = stage}); },
                            ExitCode::internal),
                   "[zero] layer.weight has a GradSync or Zero already"));
        const auto sgd = optim::make_sgd(zero.shards(), {});
        sgd->attach(zero);
        for (int step = 0; step < 2; ++step) {
          const auto refused = [&] {
            constexpr const char* why = "the gradients are those of this rank's samples: Zero::finish() was not called";
            CHECK(says(error_of([&] { static_cast<void>(zero.gradient_norm()); }, ExitCode::usage), why));
            CHECK(says(error_of([&] { sgd->step(0.1); }, ExitCode::usage), why));
            CHECK(sgd->steps() == step);
          };
          zero.zero_grad();
          refused();
          zero.last_microbatch();
          backward(sum(layer(Tensor::ones({1, 16}))));
          refused();
          zero.finish();
          CHECK(says(error_of([&] { clip_gradients(b.parameters(), *mesh, 1); }, ExitCode::usage),
                     "[gradient_norm] Zero keeps the gradient of layer.weight in pieces"));
          CHECK(says(error_of([&] { zero.finish(); }, ExitCode::internal), "[zero] rank"));
          CHECK(zero.gradient_norm() > 0);
          sgd->step(0.1);
          zero.finish_gathers();
        }
      });
    }
  }
}

TEST_CASE("stages, units and shards that do not belong together are refused") {
  const auto mesh = std::make_shared<const DeviceMesh>(self_group(), MeshShape{});
  const nn::Build b(mesh, DType::f32, 7), c(mesh, DType::f32, 7);
  nn::Linear layer((b / "layer").unit(), 4, 4), other((c / "other").unit(), 4, 4);
  for (const int stage : {-1, 0, 4})
    CHECK(says(error_of([&] { Zero(b.parameters(), b.units(), *mesh, {.stage = stage}); }, ExitCode::usage),
               fmt::format("[zero] stage {}; expected 1, 2 or 3", stage)));
  CHECK(says(error_of([&] { Zero(b.parameters(), c.units(), *mesh, {}); }, ExitCode::usage),
             "[zero] layer.bias is in the unit 'layer', which is not among the units given"));
  Zero first(b.parameters(), b.units(), *mesh, {}), second(c.parameters(), c.units(), *mesh, {});
  const auto sgd = optim::make_sgd(first.shards(), {});
  CHECK(says(error_of([&] { sgd->attach(second); }, ExitCode::usage),
             "[optimizer] attach() was given a Zero or Replicated of 2 shards, which are not the 2 of this optimizer"));
  sgd->attach(first);
  CHECK(says(error_of([&] { b.parameter("p", {2}, {.tp = placement::P}, nn::Init::ones()); }, ExitCode::internal),
             "[build] 'p' is to be P on tp; expected R, I or S(dim)"));
}

TEST_CASE("an optimizer whose Zero is gone says so") {
  const nn::Build b(std::make_shared<const DeviceMesh>(self_group(), MeshShape{}), DType::f32, 7);
  nn::Linear layer(b / "layer", 4, 4);
  std::unique_ptr<optim::Optimizer> sgd;
  {
    Zero zero(b.parameters(), b.units(), b.mesh(), {});
    sgd = optim::make_sgd(zero.shards(), {});
    sgd->attach(zero);
  }
  for (const std::string& message :
       {error_of([&] { sgd->step(0.1); }, ExitCode::usage), error_of([&] { sgd->state(); }, ExitCode::usage),
        error_of([&] { sgd->weights(); }, ExitCode::usage)})
    CHECK(says(message, "[optimizer] the Zero or Replicated that was given to attach() no longer exists"));
}

}  // namespace summed_test
