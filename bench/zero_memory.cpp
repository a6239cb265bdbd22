// Measures what ZeRO saves: bytes per parameter on each rank, by category, as counted by the allocator, for stages 0 to
// 3.
//
//   build/bin/zero_memory            GPT of 25M parameters, bf16, AdamW, dp=4 (ranks are threads); seconds
//   build/bin/zero_memory 2          dp=2
//
// "kept" is the memory in use after all gradients of a step have been summed, with no operation under way, on the rank
// with the most. Beside it is the peak of each category during a step, including buffers, in bytes per parameter. Exit
// code 1 if "kept" exceeds the formula, zero_bytes(), by more than 5%; docs/parallelism.md has a picture of it.
// Read next: parallel/zero/zero.h.
#include <cstdio>
#include <mutex>

#include "bench/command_line.h"
#include "bench/gpt.h"
#include "core/parallel_for.h"
#include "train/gpt/gpt_setup.h"
#include "train/step/trainer.h"

using namespace trireme;

namespace {

struct ZeroBytes {
  double weights, gradients, optimizer;
  double total() const { return weights + gradients + optimizer; }
};

/// Bytes per parameter of --zero `stage` over `ranks` ranks: bf16 weights (2), f32 gradients (4), f32 master, m and v
/// of AdamW (12). The totals for stages 0 to 3 are 18, 6 + 12/N, 2 + 16/N and 18/N (Rajbhandari et al. 2020, figure 1,
/// with 2 bytes of gradients).
constexpr ZeroBytes zero_bytes(int stage, double ranks) {
  return {.weights = stage >= 3 ? 2 / ranks : 2,
          .gradients = stage >= 2 ? 4 / ranks : 4,
          .optimizer = stage >= 1 ? 12 / ranks : 12};
}

constexpr std::array categories = {MemoryCategory::parameters, MemoryCategory::gradients, MemoryCategory::optimizer,
                                   MemoryCategory::communication};

struct Use {
  std::array<double, categories.size()> kept{}, peak{};
};

GptOptions options(int ranks, int stage) {
  GptOptions o;
  o.model.config = {.layers = 8, .heads = 8, .width = 512, .context = 64, .vocab = 256};
  o.mesh.axes = fmt::format("dp={}", ranks);
  o.mesh.zero = stage;
  o.precision.dtype = DType::bf16;
  o.batch.micro_batch = 1;
  o.batch.micro_batches = 2;
  resolve(o, 0);
  return o;
}

/// One rank's use in the third step: the first two fill the pool and make lazily allocated tensors.
Use measure(const GptOptions& o, const std::shared_ptr<const DeviceMesh>& mesh) {
  Trainer trainer(make_gpt(o, o.model.config, mesh), o, 4 << 20);
  const MemoryPool& pool = *MemoryPool::current();
  Use use;
  for (int step = 0; step < 3; ++step) {
    MemoryPool::current()->reset_peaks();
    trainer.gradients([&](int index) { return bench::random_batch(o, 2 * mesh->coord(Axis::dp) + index); }, 1e-3);
    trainer.optimizer().weights();  // waits for operations under way
    for (std::size_t i = 0; i < categories.size(); ++i) use.kept[i] = static_cast<double>(pool.use(categories[i]).live);
    trainer.update(1e-4, trainer.gradient_norm());
    for (std::size_t i = 0; i < categories.size(); ++i) use.peak[i] = static_cast<double>(pool.use(categories[i]).peak);
  }
  return use;
}

Use largest_over_ranks(const GptOptions& o) {
  Use largest;
  std::mutex mutex;
  run_thread_ranks(o.mesh.shape.ranks(), 1, ProcessGroup::Deadline(300),
                   [&](const std::shared_ptr<ProcessGroup>& world) {
                     const Use mine = measure(o, std::make_shared<const DeviceMesh>(world, o.mesh.shape));
                     const std::scoped_lock lock(mutex);
                     for (std::size_t i = 0; i < categories.size(); ++i) {
                       largest.kept[i] = std::max(largest.kept[i], mine.kept[i]);
                       largest.peak[i] = std::max(largest.peak[i], mine.peak[i]);
                     }
                   });
  return largest;
}

/// True if "kept" matches the formula in all stages.
bool measure_all(int ranks) {
  const double count = static_cast<double>(parameter_count(options(1, 0).model.config));
  std::printf("%.1fM parameters, bf16, dp=%d; bytes per parameter on the rank with most\n", count / 1e6, ranks);
  std::printf("%-4s %8s %8s  | kept: %10s %9s %9s | peak: %10s %9s %9s %13s\n", "zero", "formula", "kept", "parameters",
              "gradients", "optimizer", "parameters", "gradients", "optimizer", "communication");
  bool fits = true;
  for (int stage = 0; stage <= 3; ++stage) {
    Use use = largest_over_ranks(options(ranks, stage));
    double kept = 0;
    for (std::size_t i = 0; i < categories.size(); ++i) kept += use.kept[i] / count;
    for (std::size_t i = 0; i < categories.size(); ++i) {
      use.kept[i] /= count;
      use.peak[i] /= count;
    }
    const double formula = zero_bytes(stage, ranks).total();
    fits = fits && kept <= 1.05 * formula;
    std::printf("%-4d %8.2f %8.2f  |       %10.2f %9.2f %9.2f |       %10.2f %9.2f %9.2f %13.2f\n", stage, formula,
                kept, use.kept[0], use.kept[1], use.kept[2], use.peak[0], use.peak[1], use.peak[2], use.peak[3]);
  }
  return fits;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Bytes per parameter on each rank, by ZeRO stage");
  int ranks = 4;
  app.add_option("ranks", ranks, "Rank threads")->check(CLI::Range(1, 64))->capture_default_str();
  bool fits = true;
  const int code = bench::run_benchmark(app, argc, argv, [&] { fits = measure_all(ranks); });
  return code == 0 && !fits ? 1 : code;
}
