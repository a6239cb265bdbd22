// A run that cannot fit into memory is refused with what would fit.
#include "train/validate/memory_limit.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <mutex>

#include "core/control_groups.h"
#include "models/gpt.h"
#include "tests/support/batches.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/gpt_run.h"
#include "train/gpt/gpt_options.h"
#include "train/gpt/gpt_setup.h"

using namespace trireme;
using namespace trireme::testing;

namespace memory_limit_test {
namespace {

constexpr double gib = 1 << 30;

GptOptions options_of(const std::vector<std::string>& arguments) {
  GptOptions options;
  Flags flags("", "");
  declare_all(flags, options);
  flags.parse(arguments);
  resolve(options, 0);
  options.model.config = options.model.with_vocab(options.model.vocab.value_or(256));
  return options;
}

/// How these flags are refused with so much memory.
std::string refusal(const std::vector<std::string>& arguments, double bytes) {
  const GptOptions options = options_of(arguments);
  const DryProgram program = {
      .model = [&config = options.model.config](
                   const TrainOptions& o,
                   std::shared_ptr<const DeviceMesh> mesh) { return make_gpt(o, config, std::move(mesh)); },
      .sample = made_up_batch(0, 1, options.model.config.context, options.model.config.vocab).tensors};
  const MemoryOfRank memory = [&](const TrainOptions& o, int rank) { return dry_run_memory(o, program, rank); };
  return failure([&] { require_memory(options, memory_here(options, memory), memory, {bytes, "this machine has"}); });
}

}  // namespace

TEST_CASE("activations count, and the message says which micro-batch would fit") {
  CHECK(refusal({"--model", "gpt2-124m", "--context", "256", "--micro-batch", "4"}, 24 * gib) == "nothing");
  const std::string message =
      refusal({"--model", "gpt2-124m", "--context", "256", "--micro-batch", "2000000"}, 24 * gib);
  CAPTURE(message);
  CHECK(contains(message, "64 trireme: [memory] weights, gradients and optimizer state need 1.8 GiB, and activations"));
  CHECK(contains(message, "of micro-batch 2000000 with --recompute none need "));
  CHECK(contains(message, "this machine has 24.0 GiB"));
  CHECK(contains(message, "this fits: --micro-batch "));
  CHECK(contains(message, "--global-batch 2000000"));
  CHECK(contains(message, " with --recompute full"));
}

TEST_CASE("what the message suggests is not refused") {
  for (const std::string mesh : {"dp=1", "dp=2,tp=2", "pp=4"}) {
    CAPTURE(mesh);
    const std::vector<std::string> asked = {"--layers", "8",  "--width",         "512", "--heads",       "8",
                                            "--mesh",   mesh, "--micro-batches", "8",   "--micro-batch", "4096"};
    const std::string message = refusal(asked, 4 * gib);
    const std::string before = "this fits: --micro-batch ";
    REQUIRE(contains(message, before));
    const std::int64_t fits = std::stoll(message.substr(message.find(before) + before.size()));
    CHECK(fits >= 1);
    CHECK(fits < 4096);
    std::vector<std::string> smaller = asked;
    smaller.back() = std::to_string(fits);
    CHECK(refusal(smaller, 4 * gib) == "nothing");
  }
}

TEST_CASE("a model that does not fit with any batch: the message does not suggest a batch") {
  const std::string message = refusal({"--model", "gpt2-1.5b", "--micro-batch", "1"}, 2 * gib);
  CAPTURE(message);
  CHECK(contains(message, "64 trireme: [memory] "));
  CHECK_FALSE(contains(message, "this fits"));
  CHECK(contains(message, "--zero"));
  CHECK(contains(message, "times the memory"));
}

TEST_CASE("more micro-batches alive need more memory: gpipe keeps all, 1f1b those of the pipeline") {
  const auto with = [](const std::string& pipeline) {
    return refusal({"--layers", "8", "--width", "512", "--heads", "8", "--mesh", "pp=2", "--pipeline", pipeline,
                    "--micro-batch", "16", "--micro-batches", "10000"},
                   8 * gib);
  };
  CHECK(with("1f1b") == "nothing");
  CHECK(contains(with("gpipe"), "[memory]"));
}

TEST_CASE("a run is not refused with the memory that it really uses, and is refused with nine tenths of it") {
  const std::vector<std::string> small = {"--layers", "4", "--heads", "4", "--width", "64", "--context", "128"};
  const std::vector<std::vector<std::string>> cases = {
      {},
      {"--recompute", "selective"},
      {"--recompute", "full"},
      {"--recompute", "every:2"},
      {"--dtype", "bf16"},
      {"--vocab", "4000"},
      {"--activation", "swiglu", "--norm", "rms", "--positions", "rope", "--kv-heads", "2"},
      {"--dropout", "0.1"},
      {"--experts", "4", "--top-k", "2"},
      {"--mesh", "dp=2", "--zero", "1"},
      {"--mesh", "tp=2"},
      {"--mesh", "tp=2", "--sequence-parallel", "off"},
      {"--mesh", "cp=2"},
      {"--mesh", "pp=2"},
      {"--mesh", "pp=2", "--pipeline", "gpipe"},
      {"--mesh", "pp=2", "--pipeline", "interleaved:2"},
      {"--mesh", "pp=2", "--pipeline", "zero-bubble"}};
  for (const std::vector<std::string>& more : cases) {
    std::vector<std::string> arguments = small;
    arguments.insert(arguments.end(), {"--micro-batch", "16", "--micro-batches", "4"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    CAPTURE(fmt::format("{}", fmt::join(more, " ")));
    const GptOptions options = options_of(arguments);
    std::mutex mutex;
    double used = 0;  // by all ranks
    run_mesh(options.mesh.axes, [&](const MeshPtr& mesh) {
      GptRun run(options, mesh);
      run.steps(1);
      const std::scoped_lock lock(mutex);
      used += static_cast<double>(MemoryPool::current()->total().peak);
    });
    CHECK(refusal(arguments, used) == "nothing");
    CHECK(contains(refusal(arguments, 0.9 * used), "[memory]"));
  }
}

TEST_CASE("an absurd batch does not overflow the prediction, and a model that fails in a dry run says why") {
  const std::string absurd =
      refusal({"--layers", "24", "--width", "1024", "--heads", "8", "--context", "8192", "--micro-batch", "1073741824"},
              24 * gib);
  CAPTURE(absurd);
  CHECK(contains(absurd, "of micro-batch 1073741824 with --recompute none need 4194304.0 TiB"));  // 2^62 bytes
  const GptOptions options = options_of({});
  const DryProgram fails = {
      .model = [](const TrainOptions&, std::shared_ptr<const DeviceMesh>) -> std::unique_ptr<Model> {
        fail(ExitCode::data, "own", "the loss is 0");
      },
      .sample = {}};
  CHECK(contains(failure([&] { static_cast<void>(dry_run_memory(options, fails, 0)); }), "[own] the loss is 0"));
}

TEST_CASE("the machine has memory") { CHECK(host_memory().bytes > 1 << 20); }

}  // namespace memory_limit_test
