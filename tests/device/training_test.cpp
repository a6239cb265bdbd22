// A run on the emulated GPU computes, saves, resumes and generates the same as a run on the CPU.
#include "cuda/runtime/emulated.h"
#include "tests/models/recipe.h"
#include "tests/support/files.h"
#include "train/gpt/generate.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

constexpr double kRounding = 2e-5;  // of losses over some steps: sums in another order

Recipe recipe(Device device, MemoryCategory state = MemoryCategory::optimizer) {
  Recipe r{.config = {.layers = 2, .heads = 4, .width = 32, .context = 16, .vocab = test_vocab, .dropout = 0.1},
           .global_batch = 4,
           .device = device};
  r.state = state;
  return r;
}

}  // namespace

TEST_CASE("device: losses, text and checkpoints are the CPU's") {
  const std::vector<double> on_cpu = losses_on("dp=1", recipe(Device::cpu), 6);
  const cuda::ScopedEmulatedDevice device;
  const TempFolder folder;
  std::vector<double> losses;
  std::vector<std::int32_t> text;
  const std::vector<std::int32_t> prompt = {3, 10};
  run_mesh("tp=2", [&](const MeshPtr& mesh) {
    GptRun gpu = run_of(mesh, recipe(Device::cuda));
    const std::vector<double> mine = gpu.steps(3);
    gpu.save(folder.path());
    const std::vector<std::int32_t> written = generate(gpu.gpt(), prompt, {.length = 5, .temperature = 0});
    if (mesh->rank() != 0) return;
    losses = mine;
    text = written;
  });
  for (const Device resumed : {Device::cpu, Device::cuda}) {
    run_mesh("dp=1", [&](const MeshPtr& mesh) {
      GptRun second = run_of(mesh, recipe(resumed));
      second.load(folder.path());
      CHECK(generate(second.gpt(), prompt, {.length = 5, .temperature = 0}) == text);
      std::vector<double> all = losses;
      for (const double loss : second.steps(3)) all.push_back(loss);
      CHECK(largest_relative(all, on_cpu) < kRounding);
    });
  }
}

TEST_CASE("device: offloaded optimizer state stays in host memory, and the losses are the same") {
  const cuda::ScopedEmulatedDevice device;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    std::vector<std::vector<double>> losses;
    for (const MemoryCategory state : {MemoryCategory::optimizer, MemoryCategory::offloaded}) {
      run_mesh("dp=1", [&](const MeshPtr& mesh) {
        Recipe r = recipe(Device::cuda, state);
        r.dtype = dtype;
        GptRun run = run_of(mesh, r);
        losses.push_back(run.steps(3));
        const bool offloaded = state == MemoryCategory::offloaded;
        const auto live = [&](Device where) { return MemoryPool::current()->on(where)->use(state).live; };
        CHECK((live(Device::cpu) > 0) == offloaded);
        CHECK((live(Device::cuda) > 0) == !offloaded);
      });
    }
    CHECK(largest_relative(losses[1], losses[0]) < (dtype == DType::f32 ? kRounding : 5e-3));
  }
}

TEST_CASE("device: memory is given back, and too little of it is an error that says where it went") {
  std::shared_ptr<MemoryPool> pool;
  {
    const cuda::ScopedEmulatedDevice device;
    run_mesh("dp=1", [&](const MeshPtr& mesh) {
      run_of(mesh, recipe(Device::cuda)).steps(1);
      pool = MemoryPool::current()->on(Device::cuda);
    });
    CHECK(pool->total().live == 0);
    CHECK(pool->total().peak > 0);
  }
  const cuda::ScopedEmulatedDevice small(static_cast<std::size_t>(pool->total().peak) / 2);
  std::string error;
  try {
    run_mesh("dp=1", [&](const MeshPtr& mesh) { run_of(mesh, recipe(Device::cuda)).steps(1); });
  } catch (const Error& caught) {
    error = caught.what();
    CHECK(caught.code() == ExitCode::retryable);
  }
  for (const char* part : {"out of device memory", "parameters ", "emulated GPU has", "--zero 1"})
    CHECK_MESSAGE(error.find(part) != std::string::npos, error);
}
