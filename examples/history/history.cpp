#include "examples/history/history.h"

#include <chrono>
#include <thread>

#include "autograd/engine.h"
#include "autograd/node.h"
#include "core/random.h"
#include "nn/containers.h"
#include "nn/cross_entropy.h"
#include "nn/linear.h"

namespace trireme::history {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t features = 32, hidden = 128, classes = 10, batch = 32, held_out = 512;
constexpr double gradient_seconds = 0.004;
constexpr std::uint64_t teacher_seed = 11, sample_seed = 12, held_out_seed = 13;

double now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

struct Samples {
  Tensor x, y;  // [B, F], [B] i32
};

/// Random points, labelled by a fixed random network, with noise on its logits.
Samples draw(std::uint64_t seed, std::uint64_t stream, std::int64_t count) {
  static const Tensor w1 = Tensor::randn({features, 24}, teacher_seed, 0),
                      w2 = Tensor::randn({24, classes}, teacher_seed, 1);
  const NoGrad guard;
  const Tensor x = Tensor::randn({count, features}, seed, 2 * stream);         // [B, F]
  const Tensor noise = Tensor::randn({count, classes}, seed, 2 * stream + 1);  // [B, C]
  return {x, argmax(matmul(tanh(matmul(x, w1) * 0.3), w2) + noise * 0.3, 1)};
}

}  // namespace

struct Worker::Model {
  Model(int worker, int workers, double slowness)
      : mesh(std::make_shared<const DeviceMesh>(self_group(), MeshShape{})),
        build(mesh, DType::f32, 1),
        layers(build / "layers"),
        stream(static_cast<std::uint64_t>(worker)),
        streams(static_cast<std::uint64_t>(workers)),
        seconds(gradient_seconds * slowness),
        test(draw(held_out_seed, 0, held_out)) {
    layers.add<nn::Linear>(features, hidden);
    layers.add(relu);
    layers.add<nn::Linear>(hidden, hidden);
    layers.add(relu);
    layers.add<nn::Linear>(hidden, classes);
  }

  /// f(parameter, its part of a vector [P]).
  template <class F>
  void parts(const Tensor& vector, const F& f) const {
    std::int64_t begin = 0;
    for (const ParameterPtr& parameter : build.parameters()) {
      const std::int64_t count = parameter->local.count();
      f(*parameter, view::reshape(view::slice(vector, 0, begin, count), parameter->local.shape()));
      begin += count;
    }
  }

  std::shared_ptr<const DeviceMesh> mesh;
  nn::Build build;
  nn::Sequential layers;
  std::uint64_t stream, streams, drawn = 0;
  double seconds;
  Samples test;
};

Worker::Worker(int worker, int workers, double slowness) : model_(std::make_unique<Model>(worker, workers, slowness)) {}
Worker::~Worker() = default;

std::int64_t Worker::size() const {
  std::int64_t count = 0;
  for (const ParameterPtr& parameter : model_->build.parameters()) count += parameter->local.count();
  return count;
}

Tensor Worker::weights() const {
  const Tensor all = Tensor::empty({size()});
  model_->parts(all, [](const Parameter& parameter, Tensor part) { copy(parameter.local.detach(), part); });
  return all;
}

void Worker::set_weights(const Tensor& weights) {
  model_->parts(weights, [](const Parameter& parameter, const Tensor& part) {
    Tensor local = parameter.local.detach();
    copy(part, local);
  });
}

Tensor Worker::gradient() {
  const double begin = now();
  const Samples samples = draw(sample_seed, model_->drawn++ * model_->streams + model_->stream, batch);
  for (const ParameterPtr& parameter : model_->build.parameters()) parameter->leaf().set_grad({});
  backward(nn::cross_entropy(model_->layers(samples.x), samples.y, {.scale = 1.0 / batch}));
  const Tensor all = Tensor::empty({size()});
  model_->parts(all, [](const Parameter& parameter, Tensor part) { copy(parameter.grad(), part); });
  std::this_thread::sleep_for(std::chrono::duration<double>(model_->seconds - (now() - begin)));
  return all;
}

double Worker::loss() {
  const NoGrad guard;
  return nn::cross_entropy(model_->layers(model_->test.x), model_->test.y, {.scale = 1.0 / held_out}).item();
}

Log::Log(std::shared_ptr<comm::Network> network) : network_(std::move(network)), start_(now()) {}

void Log::note(double loss) { points_.push_back({now() - start_, static_cast<double>(network_->bytes()) / 1e6, loss}); }

Curve measured(const Setting& setting, const std::string& method, int ranks, const Body& body,
               comm::Algorithm algorithm) {
  const auto network = std::make_shared<comm::Network>(setting.links);
  Curve curve{.method = method, .points = {}};
  run_thread_ranks(ranks, 1, std::chrono::minutes(30), [&](const std::shared_ptr<ProcessGroup>& world) {
    world->barrier();
    Log log(network);
    body(comm::with_algorithm(world, {.algorithm = algorithm, .network = network}), log);
    if (world->rank() == 0) curve.points = log.points();
  });
  return curve;
}

Curve synchronous(const Setting& setting, double slowness) {
  return measured(setting, "synchronous", setting.workers, [&](const std::shared_ptr<ProcessGroup>& world, Log& log) {
    const int n = world->size();
    Worker worker(world->rank(), n, world->rank() == n - 1 ? slowness : 1);
    if (world->rank() == 0) log.note(worker.loss());
    Tensor w = worker.weights();
    for (int step = 0; step < setting.steps; ++step) {
      const Tensor g = worker.gradient();  // [P]
      world->all_reduce(g, ReduceOp::sum, Launch::lazy, SumOrder::any).wait();
      w = w - g * (learning_rate / n);
      worker.set_weights(w);
      if (world->rank() == 0 && step % log_every == log_every - 1) log.note(worker.loss());
    }
  });
}

}  // namespace trireme::history
