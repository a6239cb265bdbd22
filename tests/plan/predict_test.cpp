// Predictions for whole models, on a machine whose kernels take time by their FLOPs.
#include "ops/plan/predict.h"

#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "check/parity/models.h"
#include "check/parity/parity_matrix.h"
#include "ops/plan/search.h"
#include "parallel/comm/dry_group.h"
#include "train/gpt/parity_options.h"

using namespace trireme;
using namespace trireme::plan;

namespace {

class ByFlops final : public MachineModel {
 public:
  double kernel(const ProfileEvent& call) const override { return 1e-6 + 1e-12 * call.cost.flops; }
  double host(double) const override { return 0; }
  TransferTime collective(const Trace::Transfer& transfer, const Trace::Group&) const override {
    return time(transfer);
  }
  TransferTime message(const Trace::Transfer& transfer, int) const override { return time(transfer); }
  int node_of(int) const override { return 0; }

 private:
  static TransferTime time(const Trace::Transfer& transfer) {
    return {.link = 1e-6 + 1e-10 * static_cast<double>(transfer.bytes)};
  }
};

/// Of all ranks.
double simulated_seconds(const TrainOptions& options, const DryProgram& program) {
  const std::shared_ptr<DryFacts> facts = make_dry_facts();
  std::vector<std::unique_ptr<Trace>> traces;
  std::vector<RankProgram> programs;
  for (int rank = options.mesh.shape.ranks() - 1; rank >= 0; --rank) {
    traces.push_back(std::make_unique<Trace>());
    dry_run_trace(options, program, rank, *traces.back(), facts);
    programs.push_back({.rank = rank, .trace = traces.back().get()});
  }
  return step_seconds(simulate(programs, ByFlops()));
}

GptOptions options_of(const std::vector<std::string>& arguments) {
  GptOptions options = read_parity_options(arguments);
  options.model.config.experts.force_balance = true;
  return options;
}

DryProgram program_of(const GptOptions& options) { return dry_program(gpt_parity(options.model.config), options); }

}  // namespace

// Also shows that the traces of all ranks fit together, with every schedule, ZeRO stage and kind of parallelism.
TEST_CASE("one pipeline of a mesh takes as long as all of its ranks do") {
  const std::vector<Combination> all = covering_subset(parity_matrix());
  for (std::size_t i = 0; i < all.size(); i += 5) {
    INFO(to_string(all[i]));
    const GptOptions options = options_of(all[i].arguments);
    const DryProgram program = program_of(options);
    const double whole = simulated_seconds(options, program), folded = predict(options, program, ByFlops()).seconds;
    CHECK(whole > 0);
    CHECK(folded == doctest::Approx(whole).epsilon(0.05));  // ranks differ a little: a bias is added by one of tp
  }
}

TEST_CASE("many micro-batches take as long as their extrapolation says") {
  for (const char* schedule : {"1f1b", "gpipe", "zero-bubble", "interleaved:2"}) {
    INFO(schedule);
    const std::vector<std::string> arguments = {"--mesh",   "pp=2", "--pipeline",      schedule,
                                                "--layers", "4",    "--micro-batches", "16"};
    const GptOptions options = options_of(arguments);
    const DryProgram program = program_of(options);
    CHECK(predict(options, program, ByFlops()).seconds ==
          doctest::Approx(simulated_seconds(options, program)).epsilon(0.01));
  }
}

TEST_CASE("the parts of a step add up to it, and its FLOPs are those of all ranks") {
  const GptOptions one = options_of({"--layers", "4"}), four = options_of({"--layers", "4", "--mesh", "dp=2,pp=2"});
  const Prediction alone = predict(one, program_of(one), ByFlops()),
                   together = predict(four, program_of(four), ByFlops());
  double sum = 0;
  for (const auto& [name, seconds] : parts(together)) {
    CHECK(name != "waiting for a core");  // which is what the others leave
    sum += seconds;
  }
  CHECK(sum == doctest::Approx(together.seconds).epsilon(1e-6));
  CHECK(together.flops == doctest::Approx(2 * alone.flops).epsilon(1e-6));  // twice the samples
}

TEST_CASE("the meshes of a number of ranks") {
  CHECK(meshes(1, 0).size() == 1);
  CHECK(meshes(8, 0).size() == 20);  // 2^3 as an ordered product of four
  const std::vector<MeshShape> with_experts = meshes(4, 2);
  CHECK(with_experts.size() > meshes(4, 0).size());
  for (const MeshShape& mesh : with_experts) {
    CHECK(mesh.ranks() == 4);
    CHECK(mesh.size(Axis::data) % mesh.size(Axis::ep) == 0);
  }
}

TEST_CASE("a search sorts what fits by time, and says what does not") {
  const GptOptions given = options_of({"--layers", "4"});
  const auto options_on = [&](const MeshShape& mesh) -> TrainOptions {
    if (mesh.size(Axis::cp) > 1) fail(ExitCode::usage, "test", "no cp");
    return options_of({"--layers", "4", "--mesh", to_string(mesh)});
  };
  const double half = static_cast<double>(largest_memory(given, program_of(given)).peak) / 2;
  const Search found = search(meshes(4, 0), options_on, program_of(given), ByFlops(), half);
  REQUIRE(!found.choices.empty());
  CHECK(!found.too_large.empty());
  CHECK(found.choices.size() + found.too_large.size() + found.impossible.size() == meshes(4, 0).size());
  CHECK(found.impossible.front().second == "no cp");
  for (std::size_t i = 1; i < found.choices.size(); ++i)
    CHECK(found.choices[i - 1].prediction.seconds <= found.choices[i].prediction.seconds);
}
