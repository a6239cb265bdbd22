// Measures the exposed communication of a step: the part that computation does not hide. GPT of 25M parameters, data
// parallel.
//
//   build/bin/exposed_communication            dp=2, a core for each rank, --zero 0 to 3; a minute or two
//   build/bin/exposed_communication 4          dp=4
//   build/bin/exposed_communication 4 2        dp=4, shards over 2 ranks and copies across (--dp-shard 2), --zero 1-3
//
// Times are measured at the operations (parallel/comm/times.h): "communication" is the time with operations under way
// on any thread, "exposed" the time that the rank's own thread waits. This includes waiting for a slower rank, so on a
// busy machine the figure is an upper bound. Figures are medians over steps, of the rank that waits longest.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <mutex>

#include "bench/command_line.h"
#include "bench/gpt.h"
#include "core/cores.h"
#include "core/parallel_for.h"
#include "parallel/comm/times.h"
#include "train/gpt/gpt_setup.h"
#include "train/step/trainer.h"

using namespace trireme;

namespace {

constexpr int warm_up = 2, measured = 5;

struct Step {
  double milliseconds = 0, communication = 0, exposed = 0;
};

GptOptions options(int ranks, int stage, int shard_ranks) {
  GptOptions o;
  o.model.config = {.layers = 8, .heads = 8, .width = 512, .context = 256, .vocab = 256};
  o.mesh.axes = fmt::format("dp={}", ranks);
  o.mesh.zero = stage;
  if (shard_ranks > 0) o.mesh.dp_shard = shard_ranks;
  o.batch.micro_batch = 4;
  resolve(o, 0);
  return o;
}

Step run_step(Trainer& trainer, const GptOptions& o, int rank) {
  const auto start = std::chrono::steady_clock::now();
  const CommunicationTimes before = CommunicationClock::current()->read();
  trainer.gradients([&](int) { return bench::random_batch(o, o.batch_sizes().micro_batch * rank); }, 1e-3);
  trainer.update(1e-4, trainer.gradient_norm());
  const CommunicationTimes spent = CommunicationClock::current()->read() - before;
  const std::chrono::duration<double, std::milli> whole = std::chrono::steady_clock::now() - start;
  return {whole.count(), 1e3 * spent.seconds, 1e3 * spent.exposed_seconds};
}

/// The step with the median exposed share, of the rank that waits longest.
Step measure(const GptOptions& o) {
  Step worst;
  std::mutex mutex;
  run_thread_ranks(
      o.mesh.shape.ranks(), 1, ProcessGroup::Deadline(300), [&](const std::shared_ptr<ProcessGroup>& world) {
        const OwnCores own_cores(world->rank(), world->size());
        const auto mesh = std::make_shared<const DeviceMesh>(world, o.mesh.shape);
        Trainer trainer(make_gpt(o, o.model.config, mesh), o);
        std::vector<Step> steps;
        for (int i = 0; i < warm_up + measured; ++i) steps.push_back(run_step(trainer, o, mesh->rank()));
        steps.erase(steps.begin(), steps.begin() + warm_up);
        std::sort(steps.begin(), steps.end(),
                  [](const Step& a, const Step& b) { return a.exposed / a.milliseconds < b.exposed / b.milliseconds; });
        const std::scoped_lock lock(mutex);
        if (steps[measured / 2].exposed > worst.exposed) worst = steps[measured / 2];
      });
  return worst;
}

void measure_all(int ranks, int shard_ranks) {
  if (shard_ranks > 0 && ranks % shard_ranks != 0)
    fail(ExitCode::usage, "exposed_communication",
         "{} ranks do not divide into runs of {}; expected a divisor of {}; change shard", ranks, shard_ranks, ranks);
  set_threads(1);
  std::printf("GPT 25M, f32, dp=%d, 1 thread per rank, 4 x 256 tokens per rank and step\n", ranks);
  if (shard_ranks > 0) std::printf("shards over %d ranks, copies across\n", shard_ranks);
  std::printf("%-7s %10s %15s %10s %8s\n", "--zero", "step ms", "communication", "exposed", "share");
  for (int stage = shard_ranks > 0 ? 1 : 0; stage <= 3; ++stage) {
    const Step step = measure(options(ranks, stage, shard_ranks));
    std::printf("%-7d %10.0f %12.1f ms %7.1f ms %7.1f%%\n", stage, step.milliseconds, step.communication, step.exposed,
                100 * step.exposed / step.milliseconds);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Exposed communication of a step, by ZeRO stage");
  int ranks = 2, shard_ranks = 0;
  app.add_option("ranks", ranks, "Rank threads")->check(CLI::Range(1, 64))->capture_default_str();
  app.add_option("shard", shard_ranks, "Hybrid: shard over so many ranks, a divisor of all; 0: over all")
      ->check(CLI::Range(0, 64));
  return bench::run_benchmark(app, argc, argv, [&] { measure_all(ranks, shard_ranks); });
}
