// eval() and train(): of a module and those below it, as in PyTorch; of the whole model by RunState::training.
#include "nn/batch_norm.h"
#include "nn/containers.h"
#include "nn/linear.h"
#include "tests/support/errors.h"
#include "tests/support/mesh.h"

using namespace trireme;
using namespace trireme::testing;

namespace eval_test {

TEST_CASE("eval() and train() reach the modules below, and no others") {
  const nn::Build b(std::make_shared<const DeviceMesh>(self_group(), MeshShape{}), DType::f32, 1);
  nn::Sequential net(b / "net");
  auto& inner = net.add<nn::Sequential>();
  auto& first = inner.add<nn::Dropout>(0.5);
  auto& norm = inner.add<nn::BatchNorm1d>(4);
  auto& second = net.add<nn::Dropout>(0.5);
  b.run_state()->first_sample = 0;
  const Tensor x = random({6, 4}, 1, DType::f32);
  const auto running_mean = [&] { return clone(norm.buffers()[0]->value); };
  CHECK((net.training() && first.training() && norm.training() && second.training()));

  inner.eval();
  CHECK((net.training() && !inner.training() && !first.training() && !norm.training() && second.training()));
  CHECK(same_bits(first(x), x));
  CHECK(!same_bits(second(x), x));
  const Tensor before = running_mean();
  norm(x);
  CHECK(same_bits(running_mean(), before));

  net.eval();
  CHECK((!net.training() && !second.training()));
  CHECK(same_bits(second(x), x));
  net.train();
  CHECK((net.training() && first.training() && second.training()));
  norm(x);
  CHECK(!same_bits(running_mean(), before));
  net.train(false);
  CHECK(!first.training());

  net.train();
  b.run_state()->training = false;  // of all modules
  CHECK((!net.training() && !first.training()));
  CHECK(says(error_of([&] { net.train(); }, ExitCode::usage),
             "[module] 'net' is to be trained while RunState::training is false"));
  net.eval();  // changes nothing
  b.run_state()->training = true;
  net.train();
  CHECK(second.training());
}

}  // namespace eval_test
