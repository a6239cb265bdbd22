// A classifier with dropout, with one header for all of the library: learns whether a point lies inside a circle.
//
//   first_steps
//
// Exits with 0 if more than 95 % of new points are right. Read next: main.cpp, which has an operation of its own and
// trains on meshes.
#include <fmt/core.h>
#include <trireme/trireme.h>

#include <cstdlib>
#include <exception>

using namespace trireme;

namespace {

constexpr std::int64_t batch = 64;
constexpr int steps = 400;

/// Points of the square [-1, 1]^2 [batch, 2], and 1 for those inside the circle, else 0, i32 [batch].
std::pair<Tensor, Tensor> points(std::uint64_t seed) {
  const Tensor x = 2.0 * Tensor::rand({batch, 2}, seed) - 1.0;
  return {x, cast(sum(square(x), 1) < 0.5, DType::i32)};
}

double share_right() {
  const auto mesh = std::make_shared<const DeviceMesh>(self_group(), MeshShape{});
  const nn::Build b(mesh, DType::f32, /*seed=*/7);
  nn::Sequential net(b / "net");
  net.add<nn::Linear>(2, 32);
  net.add(relu);
  net.add<nn::Dropout>(0.1);
  net.add<nn::Linear>(32, 2);
  const auto optimizer = optim::make_adamw(b.parameters(), {.beta2 = 0.999, .weight_decay = 0});
  const optim::LrSchedule schedule{.lr = 1e-2};
  for (int step = 0; step < steps; ++step) {
    const auto [x, inside] = points(static_cast<std::uint64_t>(step));
    b.run_state()->first_sample = step * batch;
    nn::zero_grad(net);
    backward(nn::cross_entropy(net(x), inside, {.scale = 1.0 / batch}));
    clip_gradients(b.parameters(), *mesh, 1.0);
    optimizer->step(schedule.at(step));
  }
  net.eval();
  const NoGrad guard;
  const auto [x, inside] = points(steps);
  return mean(equal(argmax(net(x), 1), inside)).item();
}

}  // namespace

int main() {
  try {
    const double right = share_right();
    fmt::print("{:.1f} % of new points are right\n", 100 * right);
    return right > 0.95 ? EXIT_SUCCESS : EXIT_FAILURE;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return EXIT_FAILURE;
  }
}
