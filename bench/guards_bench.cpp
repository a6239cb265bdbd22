// Measures the cost of the guards: the share of a step that each takes (docs/guards.md).
//
//   build/bin/guards_bench           1024 tokens per rank
//   build/bin/guards_bench 4096      4096 tokens per rank
//
// The model is a GPT of 11M parameters, in f32 and bf16, on dp=2 with ZeRO 0 to 3. It takes about a minute.
//
// "looks" is the check of every gradient before it is summed. "copies" is the comparison of weights and state, spread
// over the ten steps between two of them. "hashes" are those of shards around every update, and "moments" those of
// --check-state. Each is timed alone, in processor time, so that other programs do not count, and on uncached memory,
// although in a step some of it is cached. Costs grow with parameters, steps with parameters times tokens: with more
// tokens each share is smaller. Read next: train/loop/guards.h.
#include <algorithm>
#include <cstdio>
#include <ctime>

#include "bench/command_line.h"
#include "bench/gpt.h"
#include "core/cores.h"
#include "core/kernels.h"
#include "parallel/mesh/verify.h"
#include "train/gpt/gpt_setup.h"
#include "train/step/trainer.h"

using namespace trireme;

namespace {

GptOptions options(std::int64_t zero, DType dtype, std::int64_t tokens) {
  GptOptions o;
  o.model.config = {.layers = 6, .heads = 6, .width = 384, .context = 128, .vocab = 256};
  o.mesh.axes = "dp=2";
  o.mesh.zero = zero;
  o.precision.dtype = dtype;
  o.batch.micro_batch = std::min<std::int64_t>(tokens, 1024) / 128;
  o.batch.micro_batches = std::max<std::int64_t>(tokens / 1024, 1);
  resolve(o, 0);
  return o;
}

/// Milliseconds of processor time of this thread.
double now() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
}

/// The least time of several calls.
template <class F>
double milliseconds(int calls, const F& f) {
  double best = 1e12;
  for (int i = 0; i < calls; ++i) {
    const double start = now();
    f();
    best = std::min(best, now() - start);
  }
  return best;
}

void measure(const GptOptions& o, const std::shared_ptr<const DeviceMesh>& mesh) {
  Trainer trainer(make_gpt(o, o.model.config, mesh), o);
  const Batch batch = bench::random_batch(o, mesh->coord(Axis::dp));
  const double step = milliseconds(3, [&] {
    trainer.gradients([&](int) { return batch; }, 1e-4);
    trainer.update(1e-4, trainer.gradient_norm());
  });
  // A rank's own gradients are as large as its part of the model, also with ZeRO.
  std::vector<Tensor> gradients;
  for (const ParameterPtr& p : trainer.model().parameters())
    gradients.push_back(Tensor::zeros(p->local.shape(), DType::f32));
  double sum = 0;
  double looks = milliseconds(5, [&] {
    for (const Tensor& g : gradients) sum += kernels(Device::cpu).sum_squares(std::span(&g, 1)).value();
  });
  if (o.mesh.zero >= 2) looks *= static_cast<double>(o.batch_sizes().micro_batches);
  std::vector<Tensor> weights, moments;  // held by no other rank
  for (const StateTensor& state : trainer.optimizer().state())
    if (o.mesh.zero > 0) (state.name == "master" ? weights : moments).push_back(state.value);
  for (const StateTensor& w : trainer.optimizer().weights()) {
    if (o.mesh.zero == 3 && w.shard) weights.push_back(w.value);
    if (o.mesh.zero > 0 && !w.shard && o.precision.dtype == DType::f32)
      weights.push_back(view::slice(w.value, 0, 0, (w.value.size(0) + 1) / 2));
  }
  std::uint64_t hashes = 0;
  const auto twice = [&](const std::vector<Tensor>& tensors) {
    return 2 * milliseconds(5, [&] {
             for (const Tensor& x : tensors) hashes ^= hash_of(x);
           });
  };
  const double shard_hashes = twice(weights), state = twice(moments);
  const double copies = std::max(milliseconds(5, [&] { trainer.check_replicas(); }) - shard_hashes / 2, 0.0) / 10;
  if (mesh->rank() != 0 || hashes + static_cast<std::uint64_t>(sum) == 1) return;
  const auto part = [&](double ms) { return fmt::format("{:6.2f} ms {:5.2f}%", ms, 100 * ms / step); };
  fmt::print("zero {} {:4}  step {:7.1f} ms | looks {} | copies {} | hashes {} | moments {}\n", o.mesh.zero,
             name(o.precision.dtype), step, part(looks), part(copies), part(shard_hashes), part(state));
  std::fflush(stdout);
}

void measure_all(std::int64_t tokens) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (std::int64_t zero = 0; zero < 4; ++zero) {
      const GptOptions o = options(zero, dtype, tokens);
      run_thread_ranks(2, 1, ProcessGroup::Deadline(120), [&](const std::shared_ptr<ProcessGroup>& world) {
        const OwnCores own_cores(world->rank(), world->size());
        measure(o, std::make_shared<const DeviceMesh>(world, o.mesh.shape));
      });
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("What watching a run costs: the part of a step that each guard takes");
  std::int64_t tokens = 1024;
  app.add_option("tokens", tokens, "In a step, on each of two ranks")
      ->check(CLI::Range(128, 1 << 20))
      ->capture_default_str();
  return bench::run_benchmark(app, argc, argv, [&] { measure_all(tokens); });
}
