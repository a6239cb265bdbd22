// An operation of your own with its gradient: Snake, x + sin(a x)^2 / a (Ziyin et al. 2020, "Neural Networks Fail to
// Learn Periodic Functions and How to Fix It"). A network with it learns a wave, and continues it beyond its data.
//
//   build/bin/model_own_operation
//
// New here: an Op with forward and backward; a comparison of its gradient with differences; a layer with a parameter of
// its own. Read next: autograd/op.h; docs/contributing.md for kernels on a GPU.
#include "autograd/engine.h"
#include "autograd/gradcheck.h"
#include "autograd/op.h"
#include "data/dataset.h"
#include "data/prefetch.h"
#include "examples/models/example.h"
#include "nn/linear.h"
#include "nn/losses.h"
#include "optim/lr_schedule.h"
#include "optim/optimizer.h"
#include "parallel/data_parallel/grad_sync.h"
#include "parallel/pipeline/executor.h"
#include "train/program/program.h"

using namespace trireme;

namespace {

constexpr std::int64_t points = 512, batch = 64, width = 32, steps = 300;

/// y = x + sin(a x)^2 / a with one a for each column. Its gradients:
///   dx = (1 + sin(2 a x)) dy,   da = the sum over rows of (x sin(2 a x) - sin(a x)^2 / a) / a dy
template <class T>
struct Snake : Op {
  static constexpr const char* name = "snake";
  Tensor x, a;  // what backward needs

  Tensor forward(const Tensor& input, const Tensor& factor) {
    x = contiguous(input), a = contiguous(factor);
    Tensor y = Tensor::empty(x.shape(), x.dtype());
    for (std::int64_t i = 0; i < x.count(); ++i) {
      const T xi = x.data<const T>()[i], ai = a.data<const T>()[i % a.count()], s = std::sin(ai * xi);
      y.data<T>()[i] = xi + s * s / ai;
    }
    return y;
  }

  Gradients backward(const Tensor& gradient) const {
    const Tensor dy = contiguous(gradient), dx = Tensor::empty(x.shape(), x.dtype()),
                 da = Tensor::zeros(a.shape(), a.dtype());
    for (std::int64_t i = 0; i < x.count(); ++i) {
      const std::int64_t column = i % a.count();
      const T xi = x.data<T>()[i], ai = a.data<T>()[column], g = dy.data<T>()[i];
      const T s = std::sin(ai * xi), s2 = std::sin(2 * ai * xi);
      dx.data<T>()[i] = (1 + s2) * g;
      da.data<T>()[column] += (xi * s2 - s * s / ai) / ai * g;
    }
    return {dx, da};
  }
};

/// x [.., D], a [D] -> [.., D], both f32 or f64 on the host.
Tensor snake(const Tensor& x, const Tensor& a) {
  require(x.dims() > 0 && a.shape() == Shape{x.size(-1)} && x.dtype() == a.dtype(), "snake",
          "expected x [.., D] and a [D] of one dtype, got {} and {}", x.shape(), a.shape());
  return x.dtype() == DType::f64 ? apply(Snake<double>{}, x, a) : apply(Snake<float>{}, x, a);
}

struct Wave : nn::Module {
  nn::Linear in, out;
  ParameterPtr a;  // [width]
  explicit Wave(const nn::Build& b)
      : Module(b),
        in(b / "in", 1, width),
        out(b / "out", width, 1),
        a(b.parameter("a", {width}, {.tp = b.per_position_placement()}, nn::Init::ones())) {}
  Tensor forward(const Tensor& x) override { return out(snake(in(x), a->value())); }  // [B, 1] -> [B, 1]
};

/// x in low .. high [N, 1], and sin(x) [N, 1].
std::pair<Tensor, Tensor> wave(double low, double high) {
  const Tensor x = low + (high - low) * Tensor::rand({points, 1}, 1);
  Tensor y = clone(x);
  for (float& value : y.span<float>()) value = std::sin(value);
  return {x, y};
}

Outcome train(const std::shared_ptr<const DeviceMesh>& mesh) {
  const nn::Build build(mesh, DType::f32, 7);
  Wave model(build);
  const auto [x, y] = wave(-8, 8);
  Loader batches(std::make_shared<Dataset>(Dataset({{"x", x}, {"y", y}}, 2)), own_part(*mesh, batch));
  GradSync gradients(build.parameters(), *mesh);
  const auto optimizer = optim::make_adamw(build.parameters(), {.weight_decay = 0});
  const optim::LrSchedule schedule{.lr = 4e-3, .min_lr = 0, .decay_end = steps};
  Outcome outcome;
  for (std::int64_t step = 0; step < steps; ++step) {
    const Batch own = batches.next();
    gradients.zero_grad();
    const Tensor loss = nn::mse_loss(model(own["x"]), own["y"], 1.0 / batch);
    backward(loss);
    gradients.finish();
    optimizer->step(schedule.at(step));
    outcome.losses.push_back(pipeline::global_loss(*mesh, loss));
  }

  const NoGrad guard;
  const auto [beyond, expected] = wave(8, 14);  // a whole period more
  outcome.score = mean(abs(model(beyond) - expected)).item();
  return outcome;
}

}  // namespace

int main() {
  return run_program([] {
    const double error =
        gradient_error([](const std::vector<Tensor>& in) { return snake(in[0], in[1]); },
                       {Tensor::randn({3, 4}, 1, 0, DType::f64), 0.5 + Tensor::rand({4}, 1, 1, DType::f64)});
    fmt::print("the gradient of snake differs from differences by at most {:.1e}\n", error);
    if (error > 1e-6) return 1;
    return train_on_one_and_two_ranks(train, {.score = "mean error beyond the data", .at_most = 0.2});
  });
}
