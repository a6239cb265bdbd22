// A network of radial basis functions learns sin(3 a) cos(2 b) on a square. It is trained on one rank, and on meshes
// with dp and tp: each must reach the same loss. First, the gradient of its operation is compared with differences.
//
//   radial_basis                   ranks are threads
//   mpirun -n 4 radial_basis       one rank per process, with dp=2,tp=2: built with -DWITH_MPI=ON
//
// Exits with 0 if the loss is at most 0.0002 on every mesh. Read next: gaussians.cpp; docs/tutorials.md for each call.
#include <fmt/core.h>
#include <trireme/autograd/engine.h>
#include <trireme/autograd/gradcheck.h>
#include <trireme/core/random.h>
#include <trireme/nn/linear.h>
#include <trireme/optim/optimizer.h>
#include <trireme/parallel/data_parallel/grad_sync.h>
#include <trireme/parallel/mesh/redistribute.h>
#include <trireme/version.h>

#include <cmath>
#include <exception>
#include <vector>

#include "gaussians.h"

using namespace trireme;

namespace {

constexpr std::int64_t units = 64, global_batch = 128;
constexpr int steps = 600;
constexpr double goal = 0.0002;

/// Gaussians around learned centers, of learned width; the units are split over tp.
struct RadialBasis : nn::Module {
  ParameterPtr center, rate;
  nn::Linear out;
  explicit RadialBasis(const nn::Build& b)
      : Module(b),
        center(b.parameter("center", {units, 2}, {.tp = placement::S(0)}, nn::Init::normal(0.7))),
        rate(b.parameter("rate", {units}, {.tp = placement::S(0)}, {nn::Init::Kind::constant, 3})),
        out(b / "out", units, {1}, nn::Split::in, {.init_std = 0.1}) {}

  Tensor forward(const Tensor& x) override {  // [B, 2] -> [B, 1]
    const Tensor all = redistribute(x, mesh(), Axis::tp, placement::I, placement::R);
    return out(gaussians(all, center->value(), rate->value()));  // [B, H/tp], then the sum over tp
  }
};

/// Samples `first` to `first` + count of the whole run: points of the square [-1, 1]^2, and what is to be learned.
std::pair<Tensor, Tensor> samples(std::int64_t first, std::int64_t count) {
  Tensor x = Tensor::empty({count, 2}), y = Tensor::empty({count, 1});
  for (std::int64_t i = 0; i < count; ++i) {
    const auto sample = static_cast<std::uint64_t>(first + i);
    float* point = x.data<float>() + 2 * i;
    for (std::uint64_t j = 0; j < 2; ++j) point[j] = 2 * random_uniform(1, j, sample) - 1;
    y.data<float>()[i] = std::sin(3 * point[0]) * std::cos(2 * point[1]);
  }
  return {x, y};
}

/// The mean square error over the last hundred steps, the same on all ranks.
double train(const std::shared_ptr<ProcessGroup>& world, const std::string& shape) {
  const auto mesh = std::make_shared<const DeviceMesh>(world, parse_mesh(shape, world->size()));
  const nn::Build build(mesh, DType::f32, 7);
  RadialBasis model(build);
  GradSync gradients(build.parameters(), *mesh);
  const auto optimizer = optim::make_adamw(build.parameters(), {.weight_decay = 0});

  const std::int64_t share = global_batch / mesh->size(Axis::dp);
  double recent = 0;
  for (int step = 0; step < steps; ++step) {
    const auto [x, y] = samples(step * global_batch + mesh->coord(Axis::dp) * share, share);
    gradients.zero_grad();
    Tensor loss = sum(square(model(x) - y)) * (1.0 / global_batch);
    gradients.last_microbatch();
    backward(loss);
    gradients.finish();
    optimizer->step(1e-2 * (1 - static_cast<double>(step) / steps), 1.0);

    Tensor mean = clone(loss);
    mesh->group(Axis::dp).all_reduce(mean).wait();
    if (step >= steps - 100) recent += mean.item() / 100;
  }
  return recent;
}

int run() {
  if (under_mpi_launcher()) {
    const auto world = mpi_world(std::chrono::seconds(30));
    const double loss = train(world, world->size() == 4 ? "dp=2,tp=2" : "dp=" + std::to_string(world->size()));
    if (world->rank() == 0) fmt::print("{} processes: loss {:.7f}\n", world->size(), loss);
    return loss <= goal ? 0 : 1;
  }
  fmt::print("Trireme {}\n", TRIREME_VERSION);
  const auto random = [](const Shape& shape, std::uint64_t stream) {
    return Tensor::rand(shape, 2, stream, DType::f64);
  };
  const double error = gradient_error([](const std::vector<Tensor>& in) { return gaussians(in[0], in[1], in[2]); },
                                      {random({3, 2}, 0), random({5, 2}, 1), random({5}, 2)});  // x, center, rate
  fmt::print("gradient of gaussians: differs from differences by at most {:.1e}\n", error);
  bool good = error < 1e-6;
  double alone = 0;
  for (const char* shape : {"dp=1", "dp=2", "tp=2", "dp=2,tp=2"}) {
    const int ranks = parse_mesh(shape, 0).ranks();
    double loss = 0;
    run_thread_ranks(ranks, 1, std::chrono::seconds(30), [&](const std::shared_ptr<ProcessGroup>& world) {
      const double reached = train(world, shape);
      if (world->rank() == 0) loss = reached;
    });
    fmt::print("{:10} loss {:.7f}\n", shape, loss);
    if (ranks == 1) alone = loss;
    good = good && loss <= goal && std::abs(loss - alone) < 1e-5;
  }
  return good ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
