// What the host does around the kernels of a training step on a GPU: it waits for the GPU once, for the loss and the
// norm, however many micro-batches there are; and it queues the update before it knows whether the step is to be
// skipped.
#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <mutex>

#include "core/device_work.h"
#include "core/profiled_kernels.h"
#include "cuda/runtime/emulated.h"
#include "parallel/comm/staged_group.h"
#include "tests/comm/fake_machine.h"
#include "tests/parity/training.h"
#include "tests/support/errors.h"
#include "tests/support/events.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"
#include "train/loop/guards.h"
#include "train/report/profiling.h"

using namespace trireme;
using namespace trireme::testing;

namespace waits_test {
namespace {

using Wrap = std::function<std::shared_ptr<ProcessGroup>(std::shared_ptr<ProcessGroup>)>;

const Wrap by_host = [](std::shared_ptr<ProcessGroup> world) { return staged(std::move(world)); };

GptOptions options(const std::string& mesh, std::int64_t micro_batches, DType dtype = DType::f32) {
  GptOptions o = training_options(mesh, micro_batches);
  o.model.config = {
      .layers = mesh.find("pp=2") == std::string::npos ? 1 : 2, .heads = 2, .width = 16, .context = 8, .vocab = 65};
  o.batch.global_batch = 4;
  o.precision.device = name(Device::cuda);
  o.precision.dtype = dtype;
  return o;
}

/// Runs `body(trainer, options, mesh)` on every rank, with an emulated GPU.
template <class Body>
void on_gpus(GptOptions o, const Wrap& wrap, const Body& body) {
  resolve(o, 0);
  validate(o);
  set_threads(1);
  run_thread_ranks(o.mesh.shape.ranks(), 1, ProcessGroup::Deadline(1800),
                   [&](const std::shared_ptr<ProcessGroup>& world) {
                     const auto mesh = std::make_shared<const DeviceMesh>(wrap(world), o.mesh.shape);
                     Trainer trainer(make_gpt(o, o.model.config, mesh), o);
                     body(trainer, o, *mesh);
                   });
}

/// What the last rank asked of its GPU in the second step of a run.
DeviceWork work_of_step(const GptOptions& o, const Wrap& wrap = by_host) {
  DeviceWork work;
  on_gpus(o, wrap, [&](Trainer& trainer, const GptOptions& resolved, const DeviceMesh& mesh) {
    Progress progress;
    Messages events([](const std::string& line) { FAIL(line); });
    Guards guards(resolved, trainer, nullptr, progress, events);
    for (int step = 0; step < 2; ++step) {
      const DeviceWork before = device_work();
      CHECK(guards.checked_update(gradients_of_step(trainer, resolved, mesh, progress.samples), 3e-3));
      if (mesh.rank() + 1 == mesh.world().size()) work = device_work() - before;
    }
  });
  return work;
}

}  // namespace

TEST_CASE("device: the host waits once a step, whatever the number of micro-batches, and launches grow with it") {
  const cuda::ScopedEmulatedDevice device;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    std::map<std::int64_t, DeviceWork> work;
    for (const std::int64_t micro_batches : {1, 2, 4})
      work[micro_batches] = work_of_step(options("dp=1", micro_batches, dtype));
    for (const auto& [micro_batches, w] : work) CHECK_MESSAGE(w.waits == 1, name(dtype), ", ", micro_batches);
    CHECK(work[1].launches > 20);
    // Each micro-batch after the first needs the same; the first overwrites gradients instead of adding to them.
    const auto more = [&](std::int64_t a, std::int64_t b) { return work[b].launches - work[a].launches; };
    CHECK(more(2, 4) == 2 * more(1, 2));
    CHECK(work[4].allocations - work[2].allocations == 2 * (work[2].allocations - work[1].allocations));
    MESSAGE(name(dtype), ", 4 micro-batches: ", work[4].launches, " launches, ", work[4].copies, " copies, ",
            work[4].allocations, " allocations");
  }
}

TEST_CASE("device: once, too, with dropout, recomputation, SGD, ZeRO and a skipped clipping") {
  const cuda::ScopedEmulatedDevice device;
  GptOptions o = options("dp=1", 2, DType::bf16);
  o.model.config.dropout = 0.1;
  o.precision.recompute = "full";
  o.mesh.zero = 1;
  CHECK(work_of_step(o).waits == 1);
  o = options("dp=1", 3);
  o.batch.global_batch = 3;
  o.optimizer.optimizer = "sgd";
  o.optimizer.clip = 0;
  CHECK(work_of_step(o).waits == 1);
}

TEST_CASE("device: once on every mesh whose ranks exchange tensors between GPUs") {
  for (const char* mesh : {"dp=2", "tp=2", "pp=2", "cp=2", "dp=2,tp=2,pp=2"}) {
    for (const int zero : {0, 1, 3}) {
      if (zero > 0 && std::string(mesh).find("dp=2") == std::string::npos) continue;
      const cuda::ScopedEmulatedDevice device;
      Machine machine;
      GptOptions o = options(mesh, 2, zero == 1 ? DType::bf16 : DType::f32);
      o.mesh.zero = zero;
      if (zero == 3) o.mesh.zero_resident = 0;
      const DeviceWork work = work_of_step(o, [&](auto world) { return machine.group(world); });
      CHECK_MESSAGE(work.waits == 1, mesh, ", ZeRO ", zero);
      CHECK(machine.told == 0);
    }
  }
}

namespace {

/// This rank's weights and optimizer state, on the host.
std::vector<Tensor> bits_of(Trainer& trainer) {
  std::vector<Tensor> tensors;
  for (const StateTensor& s : trainer.optimizer().weights_and_state())
    tensors.push_back(clone(s.value.to(Device::cpu)));
  return tensors;
}

struct Outcome {
  std::map<int, std::vector<Tensor>> bits;  // by rank
  std::map<int, double> loss;
  std::string lines;  // of rank 0
};

/// Trains two steps. The samples after the first are left out; or, with `poison`, the last rank has an infinity in a
/// gradient then, so that the step is skipped.
Outcome two_steps(const GptOptions& o, bool poison) {
  Outcome outcome;
  std::mutex mutex;
  on_gpus(o, by_host, [&](Trainer& trainer, const GptOptions& resolved, const DeviceMesh& mesh) {
    Progress progress;
    std::string lines;
    Messages events([&](const std::string& line) { lines += line + "\n"; });
    Guards guards(resolved, trainer, nullptr, progress, events);
    bool armed = false;
    trainer.gradient_watch().set_tamper([&](const Parameter& p, int) {
      if (!armed || !p.decay) return;
      Tensor first = view::slice(view::reshape(p.grad(), {p.grad().count()}), 0, 0, 1);
      kernels(first.device()).fill(first, INFINITY);
      armed = false;
    });
    bool left_out = false;
    while (progress.steps < 2) {
      const bool now = progress.steps == 1 && !left_out;
      left_out = left_out || now;
      if (now && !poison) progress.samples += resolved.batch_sizes().global_batch;
      armed = now && poison && mesh.rank() + 1 == mesh.world().size();
      const std::vector<Tensor> before = now ? bits_of(trainer) : std::vector<Tensor>();
      const bool updated = guards.checked_update(gradients_of_step(trainer, resolved, mesh, progress.samples), 3e-3);
      CHECK(updated == !(now && poison));
      CHECK(trainer.optimizer().steps() == progress.steps);
      if (!updated) CHECK(same_bits(bits_of(trainer), before));
    }
    const std::scoped_lock lock(mutex);
    outcome.bits[mesh.rank()] = bits_of(trainer);
    outcome.loss[mesh.rank()] = guards.loss();
    if (mesh.rank() == 0) outcome.lines = lines;
  });
  return outcome;
}

}  // namespace

TEST_CASE("device: a step that is not finite changes nothing, although its update is queued") {
  const cuda::ScopedEmulatedDevice device;
  struct Case {
    const char* mesh;
    int zero;
    DType dtype;
    const char* optimizer = "adamw";
  };
  for (const Case& c : {Case{"dp=1", 0, DType::f32}, Case{"dp=2", 1, DType::bf16}, Case{"dp=2", 2, DType::bf16, "sgd"},
                        Case{"dp=2", 3, DType::f32}, Case{"tp=2", 0, DType::bf16}, Case{"pp=2", 0, DType::f32}}) {
    GptOptions o = options(c.mesh, 2, c.dtype);
    o.mesh.zero = c.zero;
    if (c.zero == 3) o.mesh.zero_resident = 0;
    o.optimizer.optimizer = c.optimizer;
    const Outcome clean = two_steps(o, false), skipped = two_steps(o, true);
    INFO(c.mesh, ", ZeRO ", c.zero, ", ", name(c.dtype), ": ", skipped.lines);
    CHECK(clean.lines.empty());
    CHECK(contains(skipped.lines, "step 2 skipped: the gradient norm is infinite"));
    for (const auto& [rank, bits] : clean.bits) {
      CHECK(same_bits(bits, skipped.bits.at(rank)));
      CHECK(clean.loss.at(rank) == skipped.loss.at(rank));
    }
  }
}

TEST_CASE("device: in f16 an overflow costs one update and lowers the scale as on the CPU") {
  const cuda::ScopedEmulatedDevice device;
  const Outcome skipped = two_steps(options("dp=1", 2, DType::f16), true);
  CHECK(contains(skipped.lines, "step 2 skipped: its gradients overflowed in f16"));
  const Outcome clean = two_steps(options("dp=1", 2, DType::f16), false);
  CHECK(same_bits(clean.bits.at(0), skipped.bits.at(0)));  // the first overflow leaves the scale as it is
}

TEST_CASE("device: a loss that is not finite stops the update, with finite gradients too") {
  const cuda::ScopedEmulatedDevice device;
  on_gpus(options("dp=1", 1, DType::bf16), by_host, [](Trainer& trainer, const GptOptions& o, const DeviceMesh& mesh) {
    (void)gradients_of_step(trainer, o, mesh);
    const std::vector<Tensor> before = bits_of(trainer);
    for (const double loss : {static_cast<double>(INFINITY), static_cast<double>(NAN), 3.0}) {
      const std::vector<double> values = {loss, 4.0};
      trainer.queue_update(1e-2, {Tensor::from<double>(values, {2}).to(Device::cuda), 1});
      if (std::isfinite(loss)) {
        CHECK(trainer.update(1e-2, 2.0));
        CHECK_FALSE(same_bits(bits_of(trainer), before));
      } else {
        trainer.skip();
        CHECK(same_bits(bits_of(trainer), before));
      }
      CHECK(trainer.optimizer().steps() == (std::isfinite(loss) ? 1 : 0));
    }
  });
}

TEST_CASE("device: a profile has the launches and waits of a step, without its own waits for kernels") {
  const cuda::ScopedEmulatedDevice device;
  const TempFolder folder;
  GptOptions o = options("dp=1", 2);
  const DeviceWork expected = work_of_step(o);
  o.run.profile = (folder.path() / "trace.json").string();
  profile_kernels(true);
  on_gpus(o, by_host, [&](Trainer& trainer, const GptOptions& resolved, const DeviceMesh& mesh) {
    Progress progress;
    EventStream events;
    Guards guards(resolved, trainer, nullptr, progress, events);
    Profiling profiling(resolved, mesh);
    for (int step = 0; step < 5; ++step) {
      profiling.before_step(step);
      guards.checked_update(gradients_of_step(trainer, resolved, mesh, progress.samples), 3e-3);
      profiling.after_step();
      (void)bits_of(trainer);  // between steps: not counted
    }
    const std::string table = profiling.finish().value();
    CHECK_MESSAGE(contains(table, device_work_line(expected, 1) + "\n"), table);
    CHECK(contains(table, "waits for the device: 1\n"));
  });
  profile_kernels(false);
}

}  // namespace waits_test
