// Whole training steps (forward, backward, clip, AdamW) on random tokens, with the flags of train_gpt:
//
//   build/bin/step_bench --model gpt2-124m --context 256 --micro-batch 4 --dtype bf16 --threads 2 --steps 5
//   build/bin/step_bench --layers 4 --heads 4 --width 128 --context 64 --micro-batch 12 --vocab 65 --mesh dp=2
//
// Prints one line of JSON per step: seconds and page faults of the process. The last line has the memory: "peak_rss" of
// the process since its start, and, for the tensors of all ranks since the warm-up, "peak_bytes" and its part
// "activation_bytes". Steps are those of train_gpt, by the same Trainer; batches are made before the clock starts, and
// guards that compare several steps (spikes, replicas) do not run. Read next: bench/turns.h, bench/compare.py,
// train/step/trainer.h.
#include <barrier>
#include <mutex>

#include "bench/gpt.h"
#include "bench/turns.h"
#include "core/cpu/processor.h"
#include "core/parallel_for.h"
#include "core/random.h"
#include "train/gpt/gpt_setup.h"
#include "train/gpt/validate_gpt.h"
#include "train/launch/ranks.h"
#include "train/program/launcher.h"
#include "train/program/program.h"
#include "train/step/trainer.h"
#include "train/validate/memory_limit.h"

using namespace trireme;

namespace {

/// A GPU still computes when a step's functions return, and ranks that are processes would each have their own standard
/// input.
void require_threads_on_the_cpu(const GptOptions& o) {
  if (o.precision.tensor_device() != Device::cpu)
    fail(ExitCode::usage, "step_bench", "--device {} is not measured here; expected cpu; see bench/cuda/step.py",
         o.precision.device);
  if (launcher_ranks() > 1 || o.mesh.ranks == "mpi")
    fail(ExitCode::usage, "step_bench",
         "ranks are threads of one process here; expected no launcher and --ranks auto; start it without mpirun");
}

/// The micro-batches of one rank in one step.
std::vector<Batch> random_batches(const GptOptions& o, int dp_rank, std::int64_t step) {
  const GptConfig& c = o.model.config;
  const BatchSizes sizes = o.batch_sizes();
  std::vector<Batch> batches;
  for (std::int64_t index = 0; index < sizes.micro_batches; ++index) {
    const std::uint64_t stream = static_cast<std::uint64_t>(step * sizes.micro_batches + index);
    const auto random_ids = [&](std::uint64_t seed) {
      const Tensor ids = Tensor::empty({sizes.micro_batch, c.context}, DType::i32);  // [B, T]
      for (std::int64_t i = 0; i < ids.count(); ++i)
        ids.data<std::int32_t>()[i] = static_cast<std::int32_t>(
            random_word(seed, stream, static_cast<std::uint64_t>(i)) % static_cast<std::uint64_t>(c.vocab));
      return ids;
    };
    const std::uint64_t seed = 2 * static_cast<std::uint64_t>(dp_rank);
    std::vector<std::int64_t> samples(static_cast<std::size_t>(sizes.micro_batch), 0);
    batches.push_back(token_batch(random_ids(seed), random_ids(seed + 1), std::move(samples)));
  }
  return batches;
}

std::map<std::string, Tensor, std::less<>> one_sample(const GptOptions& options) {
  GptOptions one = options;
  one.batch = {.micro_batch = 1, .global_batch = std::nullopt, .micro_batches = 1};
  return random_batches(one, 0, 0).front().tensors;
}

/// The work of one rank.
class Steps {
 public:
  Steps(const GptOptions& o, const std::shared_ptr<const DeviceMesh>& mesh)
      : options_(o), dp_rank_(mesh->coord(Axis::dp)), trainer_(make_gpt(o, o.model.config, mesh), o) {}

  void prepare() { batches_ = random_batches(options_, dp_rank_, made_++); }
  void step() {
    const double tokens = static_cast<double>(options_.batch_sizes().tokens_per_step(options_.model.config.context));
    trainer_.gradients([&](int index) { return batches_[static_cast<std::size_t>(index)]; }, 1 / tokens);
    trainer_.update(options_.schedule.lr, trainer_.gradient_norm());
  }

 private:
  const GptOptions& options_;
  int dp_rank_;
  std::int64_t made_ = 0;
  Trainer trainer_;
  std::vector<Batch> batches_;
};

nlohmann::json facts(const GptOptions& o) {
  const GptConfig& c = o.model.config;
  return {{"parameters", parameter_count(c)},
          {"tokens", o.batch_sizes().tokens_per_step(c.context)},
          {"flops", training_flops_per_token(c) * static_cast<double>(o.batch_sizes().tokens_per_step(c.context))},
          {"ranks", o.mesh.shape.ranks()},
          {"threads", threads()},
          {"dtype", name(o.precision.dtype)},
          {"gemm", o.precision.gemm},
          {"bf16_unit", cpu::name(cpu::bf16_unit())}};
}

/// Most tensor memory in use at once since reset_peaks(), summed over the ranks.
struct Memory {
  std::mutex mutex;
  std::int64_t total = 0, activations = 0;

  void add(const MemoryPool& pool) {
    const std::scoped_lock lock(mutex);
    total += pool.total().peak;
    activations += pool.use(MemoryCategory::activations).peak;
  }
};

/// One rank's part: warm up, then turns of as many steps as the first rank reads.
class Rounds {
 public:
  Rounds(const GptOptions& o, bench::Turns& turns) : options_(o), turns_(turns), together_(o.mesh.shape.ranks()) {}

  void run(Rank& rank) {
    try {
      steps(rank);
    } catch (...) {
      together_.arrive_and_drop();  // other ranks must not wait for this one
      throw;
    }
  }
  nlohmann::json end() const {
    return {{"peak_rss", bench::Usage::peak_rss()},
            {"peak_bytes", memory_.total},
            {"activation_bytes", memory_.activations}};
  }

 private:
  void steps(Rank& rank) {
    const auto mesh = std::make_shared<const DeviceMesh>(rank.world, options_.mesh.shape);
    rank.enter(*mesh);
    Steps steps(options_, mesh);
    for (std::int64_t i = 0; i < turns_.warm_up(); ++i) {
      steps.prepare();
      steps.step();
    }
    MemoryPool::current()->reset_peaks();
    if (rank.first()) bench::Turns::say({{"ready", facts(options_)}});
    while (const std::int64_t count = next_turn(rank)) {
      for (std::int64_t i = 0; i < count; ++i) {
        steps.prepare();
        together_.arrive_and_wait();
        const bench::Usage usage;
        steps.step();
        together_.arrive_and_wait();  // the step takes as long as the slowest rank
        if (rank.first()) bench::Turns::say(usage.json());
      }
    }
    memory_.add(*MemoryPool::current());
  }

  std::int64_t next_turn(const Rank& rank) {
    if (rank.first()) {
      asked_ = 0;  // the other ranks see this value if the next line throws
      asked_ = turns_.next();
    }
    together_.arrive_and_wait();
    const std::int64_t count = asked_;
    together_.arrive_and_wait();
    return count;
  }

  const GptOptions& options_;
  bench::Turns& turns_;
  std::barrier<> together_;
  std::int64_t asked_ = 0;  // steps of the turn: written by the first rank, read by all
  Memory memory_;
};

}  // namespace

int main(int argc, char** argv) {
  return run_program([&] {
    GptOptions options;
    options.model.vocab = options.model.config.vocab;
    bench::Turns turns;
    Flags flags("step_bench", "Times whole training steps on random tokens.");
    turns.declare(flags);
    declare_model(flags, options.model);
    declare_experts(flags, options.model);
    declare_batch(flags, options.batch);
    declare_optimizer(flags, options.optimizer);
    declare_mesh(flags, options.mesh);
    declare_precision(flags, options.precision);
    if (!flags.parse_or_print(argc, argv)) return 0;
    require_threads_on_the_cpu(options);
    resolve(options, 0);
    options.guards.check_replicas = 0;
    options.model.config = bench::model_on_random_tokens(options.model);
    validate(options);
    const DryProgram program = {
        .model = [&config = options.model.config](
                     const TrainOptions& o,
                     std::shared_ptr<const DeviceMesh> mesh) { return make_gpt(o, config, std::move(mesh)); },
        .sample = one_sample(options)};
    const MemoryOfRank memory = [&](const TrainOptions& o, int rank) { return dry_run_memory(o, program, rank); };
    const MachineMemory need = memory_here(options, memory);
    require_memory(options, need, memory, usable_memory(options));
    Rounds rounds(options, turns);
    const int code = run_ranks(
        options, [&](Rank& rank) { rounds.run(rank); }, {}, memory_clause(options, need));
    bench::Turns::say({{"end", rounds.end()}});
    return code;
  });
}
