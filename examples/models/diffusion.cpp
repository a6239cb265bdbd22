// A diffusion model (Ho et al. 2020, "Denoising Diffusion Probabilistic Models") of points in the plane: five clusters
// on a circle. Noise is added to points in many small steps; a network learns to predict it, and so to remove it. From
// pure noise, the network then makes new points.
//
//   build/bin/model_diffusion
//
// New here: a model with several inputs; noise that belongs to a sample's number; sampling. Read next:
// docs/writing_a_model.md.
#include "autograd/engine.h"
#include "core/random.h"
#include "data/prefetch.h"
#include "data/sample_source.h"
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

constexpr std::int64_t clusters = 5, noise_steps = 50, batch = 256, width = 96, steps = 800;

/// beta(t): the variance of the noise that step t adds. kept(t): how much of a point's variance is left after step t.
double beta(std::int64_t t) { return 0.002 + 0.2 * static_cast<double>(t) / noise_steps; }
double kept(std::int64_t t) { return t < 0 ? 1 : (1 - beta(t)) * kept(t - 1); }

std::array<double, 2> center(std::uint64_t cluster) {
  const double angle = 6.283185307179586 / clusters * static_cast<double>(cluster);
  return {2 * std::cos(angle), 2 * std::sin(angle)};
}

/// A point of a cluster after a random number of steps, the step, and the noise that was added.
struct NoisyPoints : SampleSet {
  std::int64_t size() const override { return std::int64_t{1} << 40; }
  Sample get(std::int64_t index) const override {
    const auto stream = static_cast<std::uint64_t>(index);
    const std::int64_t step = random_word(1, stream, 1) % noise_steps;
    const auto [x, y] = center(random_word(1, stream, 0) % clusters);
    const Tensor point = Tensor::from({x, y}) + 0.15 * Tensor::randn({2}, 2, stream),
                 noise = Tensor::randn({2}, 3, stream);
    return {{"x", std::sqrt(kept(step)) * point + std::sqrt(1 - kept(step)) * noise},
            {"t", Tensor::full({1}, static_cast<double>(step) / noise_steps)},
            {"noise", noise}};
  }
};

struct Denoiser : nn::ModuleBase {
  nn::Linear in, hidden1, hidden2, out;
  explicit Denoiser(const nn::Build& b)
      : ModuleBase(b),
        in(b / "in", 3, width),
        hidden1(b / "hidden1", width, width),
        hidden2(b / "hidden2", width, width),
        out(b / "out", width, 2) {}
  Tensor operator()(const Tensor& x, const Tensor& t) {  // [B, 2], [B, 1] -> the noise in x [B, 2]
    return call([&] {
      Tensor h = silu(in(concat({x, t}, 1)));  // [B, width]
      h = h + silu(hidden1(h));
      h = h + silu(hidden2(h));
      return out(h);
    });
  }
};

/// New points [N, 2], from noise: algorithm 2 of the paper.
Tensor sample(Denoiser& model, std::int64_t count) {
  const NoGrad guard;
  Tensor x = Tensor::randn({count, 2}, 5, noise_steps);
  for (std::int64_t t = noise_steps - 1; t >= 0; --t) {
    const Tensor noise = model(x, Tensor::full({count, 1}, static_cast<double>(t) / noise_steps));
    x = (x - beta(t) / std::sqrt(1 - kept(t)) * noise) / std::sqrt(1 - beta(t));
    if (t > 0) x = x + std::sqrt(beta(t)) * Tensor::randn({count, 2}, 5, static_cast<std::uint64_t>(t));
  }
  return x;
}

/// The share of points within three standard deviations of the center of a cluster.
double share_in_clusters(const Tensor& points) {
  Tensor nearest = Tensor::full({points.size(0)}, 1e9);
  for (std::uint64_t cluster = 0; cluster < clusters; ++cluster) {
    const auto [x, y] = center(cluster);
    nearest = minimum(nearest, norm(points - Tensor::from({x, y}), 1));
  }
  return mean(nearest < 0.45).item();
}

Outcome train(const std::shared_ptr<const DeviceMesh>& mesh) {
  const nn::Build build(mesh, DType::f32, 7);
  Denoiser model(build);
  GradSync gradients(build.parameters(), *mesh);
  const auto optimizer = optim::make_adamw(build.parameters(), {.weight_decay = 0});
  const optim::LrSchedule schedule{.lr = 1e-2, .min_lr = 0, .decay_end = steps};
  const auto points = std::make_shared<SampleSource>(std::make_shared<NoisyPoints>(), 0, false);  // in order
  Loader batches(points, own_part(*mesh, batch));
  Outcome outcome;
  for (std::int64_t step = 0; step < steps; ++step) {
    const Batch own = batches.next();
    gradients.zero_grad();
    const Tensor loss = nn::mse_loss(model(own["x"], own["t"]), own["noise"], 1.0 / (2 * batch));
    backward(loss);
    gradients.finish();
    optimizer->step(schedule.at(step));
    outcome.losses.push_back(pipeline::global_loss(*mesh, loss));
  }
  outcome.score = share_in_clusters(sample(model, 1000));
  return outcome;
}

}  // namespace

int main() {
  return run_program([] {
    return train_on_one_and_two_ranks(train, {.score = "share of new points in a cluster", .at_least = 0.85});
  });
}
