// --verify finds ranks that differ, at the first place where they differ, and names it. It changes no result.
#include "parallel/data_parallel/verify.h"
#include "core/kernels.h"
#include "parallel/comm/call_site.h"
#include "parallel/comm/verifying_group.h"
#include "tests/parity/training.h"
#include "tests/support/errors.h"

using namespace trireme;
using namespace trireme::testing;

namespace verify_test {
namespace {

/// The loss of one training step, on verified groups if `verify`. `change` runs on every rank before it.
/// Faults are in the groups of `wrap`.
template <class Change>
double loss_of_step(
    GptOptions o, bool verify, const Change& change, const WrapWorld& wrap = [](auto world) { return world; }) {
  resolve(o, 0);
  validate(o);
  set_threads(1);
  double loss = 0;
  run_thread_ranks(
      o.mesh.shape.ranks(), 1, ProcessGroup::Deadline(1800), [&](const std::shared_ptr<ProcessGroup>& world) {
        const auto mesh = std::make_shared<const DeviceMesh>(verify ? verifying(wrap(world)) : world, o.mesh.shape);
        Trainer trainer(make_gpt(o, o.model.config, mesh), o);
        change(trainer, *mesh);
        const Trainer::GradientReport report = gradients_of_step(trainer, o, *mesh);
        trainer.update(1e-3, trainer.gradient_norm());
        const double whole = pipeline::global_loss(*mesh, report.pipeline.loss);
        if (mesh->rank() == 0) loss = whole;
      });
  return loss;
}

constexpr auto no_change = [](Trainer&, const DeviceMesh&) {};

/// Adds to one element of a parameter on one rank.
auto perturb(const char* parameter, int rank) {
  return [=](Trainer& trainer, const DeviceMesh& mesh) {
    for (const ParameterPtr& p : trainer.model().parameters()) {
      if (mesh.rank() == rank && p->name == parameter) p->local.data<float>()[3] += 0.125F;
    }
  };
}

}  // namespace

TEST_CASE("a verified run has the same loss") {
  for (const char* mesh : {"dp=2", "tp=2", "pp=2", "dp=2,tp=2,pp=2"}) {
    const GptOptions o = training_options(mesh, 2);
    CHECK(loss_of_step(o, true, no_change) == loss_of_step(o, false, no_change));
  }
}

TEST_CASE("tp ranks whose replicated weights differ are found in the layer that first shows it") {
  GptOptions o = training_options("tp=2");
  o.mesh.sequence_parallel = false;  // otherwise ranks apply it to different positions, so outputs cannot be compared
  const std::string error =
      error_of([&] { loss_of_step(o, true, perturb("blocks.2.norm1.bias", 1)); }, ExitCode::desync);
  CHECK_MESSAGE(contains(error, "the input of I -> R in blocks.2.attn"), error);
  CHECK_MESSAGE(contains(error, "differs between rank 0 (world rank 0) and rank 1 (world rank 1): element 3 is"),
                error);
}

TEST_CASE("dp ranks whose weights differ are found after the step, by the parameter's name") {
  const std::string error = error_of(
      [] { loss_of_step(training_options("dp=2"), true, perturb("blocks.1.mlp.up.weight", 1)); }, ExitCode::desync);
  CHECK_MESSAGE(contains(error, "parameter blocks.1.mlp.up.weight"), error);
}

TEST_CASE("a gradient that differs is found before clipping makes all weights differ") {
  GptOptions o = training_options("dp=2");
  o.optimizer.clip = 0.1;
  const Fault changes_a_gradient = [](Tensor& x, const ProcessGroup& group, const std::function<void()>& sum) {
    sum();
    if (group.rank() == 1 && x.count() > 1000) x.data<float>()[3] += 1;  // of a bucket of gradients
  };
  const auto wrap = [&](auto world) { return std::make_shared<FaultyGroup>(world, "d", changes_a_gradient); };
  const std::string error = error_of([&] { loss_of_step(o, true, no_change, wrap); }, ExitCode::desync);
  CHECK_MESSAGE(contains(error, "] gradient norm.bias in the program should be the same"), error);
}

TEST_CASE("masters and moments that differ are found after the step, though the weights are equal") {
  struct Change {
    const char* kind;
    float by;  // too little for a weight in bf16 to show it
  };
  for (const auto& [kind, by] : {Change{"master", 1e-7F}, Change{"m", 1e-9F}, Change{"v", 1e-13F}}) {
    GptOptions o = training_options("dp=2");
    o.precision.dtype = DType::bf16;
    const std::string error = error_of(
        [&] {
          loss_of_step(o, true, [&, kind = kind, by = by](Trainer& trainer, const DeviceMesh& mesh) {
            for (const StateTensor& s : trainer.optimizer().state())
              if (mesh.rank() == 1 && s.full_name() == fmt::format("optimizer.{}.blocks.1.mlp.up.weight", kind))
                s.value.data<float>()[3] += by;
          });
        },
        ExitCode::desync);
    CHECK_MESSAGE(contains(error, fmt::format("state optimizer.{}.blocks.1.mlp.up.weight", kind)), error);
  }
}

TEST_CASE("the two copies of a tied embedding that differ are found") {
  const std::string error =
      error_of([] { loss_of_step(training_options("pp=2"), true, perturb("wte.weight", 1)); }, ExitCode::desync);
  CHECK_MESSAGE(contains(error, "tied parameter wte.weight"), error);
}

TEST_CASE("ranks in different layers with operations of one size are found") {
  const std::string error = error_of(
      [] {
        run_thread_ranks(2, 1, ProcessGroup::Deadline(1800), [](const std::shared_ptr<ProcessGroup>& world) {
          const std::shared_ptr<ProcessGroup> group = verifying(world);
          const CallSite site(world->rank() == 0 ? "blocks.0.attn.proj" : "blocks.0.mlp.down");
          group->all_reduce(Tensor::zeros({16})).wait();
        });
      },
      ExitCode::desync);
  CHECK_MESSAGE(contains(error,
                         "operation #1 of group 'world' differs between ranks: rank 0 (world rank 0) is at "
                         "all_reduce(sum of 16 f32) in blocks.0.attn.proj, rank 1 (world rank 1) is at "
                         "all_reduce(sum of 16 f32) in blocks.0.mlp.down"),
                error);
}

}  // namespace verify_test
