// Under every ZeRO stage all schedules give the same bits: losses, norms, every gradient, and the weights after steps.
#include <map>

#include "parallel/pipeline/schedules.h"
#include "tests/parity/training.h"
#include "tests/support/mesh.h"
#include "tests/support/sanitized.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

/// What two steps gave on all ranks.
struct Outcome {
  std::vector<double> losses, norms;
  std::map<std::string, Tensor> tensors;  // gradients and weights, by name and by where the piece lies in the whole
};

Outcome run(GptOptions o, std::int64_t zero, const std::string& pipeline) {
  o.mesh.zero = zero;
  if (zero == 0) o.mesh.dp_shard = {};
  o.mesh.pipeline = pipeline;
  if (zero == 3) o.mesh.zero_resident = 100;
  Outcome outcome;
  std::mutex mutex;
  on_ranks(o, [&](Trainer& trainer, const GptOptions& options, const DeviceMesh& mesh) {
    const auto keep = [&](const std::string& kind, const std::vector<StateTensor>& pieces) {
      const std::scoped_lock lock(mutex);
      for (const StateTensor& piece : pieces) {
        if (piece.value.count() == 0) continue;
        const Rectangle where = piece.rectangle();
        const auto [found, is_new] = outcome.tensors.emplace(
            fmt::format("{} of {} at {}", kind, piece.parameter->name, to_string(where.start)), clone(piece.value));
        CHECK_MESSAGE(same_bits(found->second, piece.value), found->first);  // a copy on another rank
      }
    };
    for (int step = 0; step < 2; ++step) {
      const Trainer::GradientReport report =
          gradients_of_step(trainer, options, mesh, options.batch_sizes().global_batch * step);
      const double loss = pipeline::global_loss(mesh, report.pipeline.loss), norm = trainer.gradient_norm();
      keep(fmt::format("gradient {}", step), trainer.gradient_pieces());
      trainer.update(1e-2, norm);
      if (mesh.rank() > 0) continue;
      outcome.losses.push_back(loss);
      outcome.norms.push_back(norm);
    }
    keep("weight", trainer.optimizer().weights());
  });
  return outcome;
}

GptOptions options_of(const std::string& mesh, std::int64_t micro_batches, DType dtype) {
  GptOptions o = training_options(mesh, micro_batches);
  o.model.config = {.layers = 4, .heads = 2, .width = 16, .context = 8, .vocab = 65};
  o.precision.dtype = dtype;
  o.batch.global_batch = 2 * micro_batches;
  return o;
}

void check_schedules(const GptOptions& o, const std::string& what) {
  for (const std::int64_t zero : {0, 1, 2, 3}) {
    const Outcome expected = run(o, zero, "1f1b");
    CHECK(expected.tensors.size() > 20);
    for (const std::string& pipeline : pipeline::schedule_examples()) {
      if (pipeline == "1f1b") continue;
      const Outcome outcome = run(o, zero, pipeline);
      CHECK_MESSAGE(outcome.losses == expected.losses, what, " zero ", zero, " ", pipeline);
      CHECK_MESSAGE(outcome.norms == expected.norms, what, " zero ", zero, " ", pipeline);
      REQUIRE(outcome.tensors.size() == expected.tensors.size());
      for (const auto& [name, tensor] : expected.tensors)
        CHECK_MESSAGE(same_bits(tensor, outcome.tensors.at(name)), what, " zero ", zero, " ", pipeline, " ", name);
    }
  }
}

}  // namespace

TEST_CASE(
    "all schedules give the same bits under ZeRO 0 to 3: odd numbers of micro-batches, tied or not, f32 and bf16") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const bool tied : {true, false}) {
      for (const std::int64_t micro_batches : {3, 5}) {
        if (sanitized && (dtype != DType::f32 || micro_batches != 3)) continue;
        GptOptions o = options_of("dp=2,pp=2", micro_batches, dtype);
        o.model.config.tied = tied;
        check_schedules(o, fmt::format("{} tied {} micro-batches {}", name(dtype), tied, micro_batches));
      }
    }
  }
}

TEST_CASE("all schedules give the same bits under ZeRO 0 to 3: four stages, hybrid shards, experts, recomputation") {
  GptOptions deep = options_of("dp=2,pp=4", 5, DType::f32);
  deep.model.config.layers = 8;
  if (!sanitized) check_schedules(deep, "four stages");
  GptOptions experts = options_of("dp=2,pp=2,ep=2", 3, DType::f32);
  experts.model.config.experts.count = 4;
  experts.model.config.dropout = 0.1;
  experts.precision.recompute = "every:2";
  check_schedules(experts, "experts");
  GptOptions hybrid = options_of("dp=2,pp=2", 3, DType::f32);
  hybrid.mesh.dp_shard = 1;
  check_schedules(hybrid, "--dp-shard 1");
}
