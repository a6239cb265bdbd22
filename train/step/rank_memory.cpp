#include "train/step/rank_memory.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <thread>

#include "core/dry_run.h"
#include "core/parallel_for.h"
#include "parallel/comm/dry_group.h"
#include "parallel/pipeline/schedules.h"
#include "train/program/units.h"

namespace trireme {
namespace {

void make_dry_steps(TrainOptions o, const DryProgram& program, int rank, int steps, Trace* trace,
                    std::shared_ptr<DryFacts> facts) {
  o.guards.check_replicas = 0;  // not in every step
  const auto mesh =
      std::make_shared<const DeviceMesh>(dry_world(o.mesh.shape.ranks(), rank, trace, std::move(facts)), o.mesh.shape);
  Trainer trainer(program.model(o, mesh), o);
  const Trainer::NextBatch next_batch = copies_of_sample(program, o.batch_sizes().micro_batch, 0);
  for (int step = 0; step < steps; ++step) {
    make_steps(trainer, next_batch, 1);
    if (trace != nullptr) trace->mark();
  }
}

/// On a thread of its own: a dry run replaces the thread's memory pool, and must not meet a rank's profile or team.
void on_own_thread(const TrainOptions& options, const std::function<void()>& body) {
  std::exception_ptr error;
  std::thread([&] {
    set_threads(options.threads_per_rank());
    try {
      body();
    } catch (...) { error = std::current_exception(); }
  }).join();
  if (error) std::rethrow_exception(error);
}

/// Within a dry run.
RankMemory memory_of_steps(const TrainOptions& o, const DryProgram& program, int rank, int steps,
                           Trace* trace = nullptr, std::shared_ptr<DryFacts> facts = nullptr) {
  const Device device = o.precision.tensor_device();
  try {
    make_dry_steps(o, program, rank, steps, trace, std::move(facts));
  } catch (const Error& error) {
    constexpr std::int64_t most = std::int64_t{1} << 44;  // bytes: no machine has as many
    if (trace != nullptr || error.where() != "memory" || memory_used(device).peak < most) throw;
    // Otherwise addresses ran out: so much is needed at least.
  }
  return memory_used(device);
}

/// f(n), for an f that is a straight line beyond `most`.
template <class F>
RankMemory extrapolated(const F& f, std::int64_t n, std::int64_t most) {
  if (n <= most) return f(n);
  const std::int64_t half = most / 2;
  const RankMemory x = f(half), y = f(most);
  const auto at_n = [&](std::int64_t a, std::int64_t b) {
    constexpr double largest = 0x1p62;  // a hostile batch must not overflow
    const double steps = static_cast<double>(n - most) / static_cast<double>(half);
    const double bytes = static_cast<double>(b) + static_cast<double>(b - a) * steps;
    return static_cast<std::int64_t>(std::clamp(bytes, 0.0, largest));
  };
  RankMemory memory{.peak = at_n(x.peak, y.peak)};
  for (std::size_t i = 0; i < memory.at_peak.size(); ++i) {
    memory.at_peak[i] = at_n(x.at_peak[i], y.at_peak[i]);
    memory.peaks[i] = at_n(x.peaks[i], y.peaks[i]);
  }
  return memory;
}

RankMemory memory_of_rank(const TrainOptions& options, const DryProgram& program, int rank) {
  constexpr std::int64_t most_samples = 64;  // of a micro-batch: beyond it, addresses may run out
  const BatchSizes sizes = options.batch_sizes();
  // With as many micro-batches, every schedule is in its steady state; gpipe keeps one more for each.
  const std::int64_t most_micro_batches =
      std::int64_t{8} * options.mesh.shape.size(Axis::pp) * pipeline::chunks_per_rank(options.mesh.pipeline);
  const auto of_samples = [&](std::int64_t samples) {
    const auto of_micro_batches = [&](std::int64_t count) {
      TrainOptions o = options;
      o.batch = {.micro_batch = samples, .global_batch = std::nullopt, .micro_batches = count};
      const DryRun dry;
      return memory_of_steps(o, program, rank, 2);  // the second has everything that the first one made
    };
    return extrapolated(of_micro_batches, sizes.micro_batches, most_micro_batches);
  };
  return extrapolated(of_samples, sizes.micro_batch, most_samples);
}

}  // namespace

RankMemory memory_used(Device device) {
  const MemoryPool& pool = *MemoryPool::current()->on(device);
  RankMemory memory{.at_peak = pool.at_peak(), .peak = pool.total().peak};
  for (int i = 0; i < memory_categories; ++i)
    memory.peaks[static_cast<std::size_t>(i)] = pool.use(static_cast<MemoryCategory>(i)).peak;
  if (device != Device::cpu) {
    constexpr auto offloaded = static_cast<std::size_t>(MemoryCategory::offloaded);
    memory.at_peak[offloaded] = memory.peaks[offloaded] = MemoryPool::current()->use(MemoryCategory::offloaded).peak;
  }
  return memory;
}

std::string to_string(const RankMemory& memory) {
  std::string parts;
  for (int i = 0; i < memory_categories; ++i) {
    const auto category = static_cast<MemoryCategory>(i);
    if (category == MemoryCategory::offloaded || memory.of(category) == 0) continue;
    parts += fmt::format("{}{} {}", parts.empty() ? "" : " + ", format_bytes(static_cast<double>(memory.of(category))),
                         name(category));
  }
  const auto offloaded = static_cast<double>(memory.of(MemoryCategory::offloaded));
  return fmt::format(
      "{} = {}{}", parts, format_bytes(static_cast<double>(memory.peak)),
      offloaded > 0 ? fmt::format(", and {} optimizer offloaded to host memory", format_bytes(offloaded)) : "");
}

Trainer::NextBatch copies_of_sample(const DryProgram& program, std::int64_t samples, std::int64_t first_id) {
  return [&program, samples, id = first_id](int) mutable {
    Batch batch{.tensors = program.sample, .sample_ids = {id++}};
    for (auto& [name, tensor] : batch.tensors)
      tensor = clone(view::expand(tensor, tensor.shape().with(0, samples)));  // [samples, ..]
    return batch;
  };
}

void make_steps(Trainer& trainer, const Trainer::NextBatch& next_batch, int steps) {
  constexpr double lr = 1e-3;
  for (int step = 0; step < steps; ++step) {
    const Trainer::GradientReport made = trainer.gradients(next_batch, 1.0);
    StepNumbers numbers = trainer.numbers(made);
    trainer.queue_update(lr, numbers);
    trainer.update(lr, numbers.norm());
  }
}

RankMemory dry_run_memory(const TrainOptions& options, const DryProgram& program, int rank) {
  RankMemory memory;
  on_own_thread(options, [&] { memory = memory_of_rank(options, program, rank); });
  return memory;
}

RankMemory dry_run_trace(const TrainOptions& options, const DryProgram& program, int rank, Trace& trace,
                         std::shared_ptr<DryFacts> facts, OwnCores::Share cores, int steps) {
  RankMemory memory;
  on_own_thread(options, [&] {
    std::optional<OwnCores> own_cores;
    if (cores.parts > 0) own_cores.emplace(cores.first, cores.parts);
    const DryRun dry(&trace, trace.measures());
    memory = memory_of_steps(options, program, rank, steps, &trace, std::move(facts));
  });
  return memory;
}

pipeline::StagePlan dry_run_plan(const TrainOptions& options, const DryProgram& program) {
  pipeline::StagePlan plan;
  on_own_thread(options, [&] {
    const DryRun dry;
    const MeshShape& shape = options.mesh.shape;
    plan = program.model(options, std::make_shared<const DeviceMesh>(dry_world(shape.ranks(), 0), shape))->plan();
  });
  return plan;
}

}  // namespace trireme
