// How a run checks its replicas of weights and optimizer state, with tensors on the emulated GPU.
#include "cuda/runtime/emulated.h"
#include "parallel/comm/staged_group.h"
#include "tests/parity/compare.h"
#include "tests/support/errors.h"
#include "train/gpt/gpt_setup.h"
#include "train/step/trainer.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

/// Compares the copies of weights on two ranks, after damage to the second rank's if `damaged`. Returns the message of
/// the error; empty if there is none.
std::string compared(std::int64_t zero, bool damaged) {
  GptOptions o = training_options("dp=2", 2);
  o.model.config.layers = 1;
  o.model.config.width = 16;
  o.precision.device = name(Device::cuda);
  o.mesh.zero = zero;
  resolve(o, 2);
  const cuda::ScopedEmulatedDevice device;
  return error_of([&] {
    run_thread_ranks(2, 1, std::chrono::minutes(30), [&](std::shared_ptr<ProcessGroup> world) {
      const auto mesh = std::make_shared<const DeviceMesh>(staged(std::move(world)), o.mesh.shape);
      Trainer trainer(make_gpt(o, o.model.config, mesh), o);
      if (damaged && mesh->rank() == 1) {
        Tensor weight = trainer.model().parameters().front()->local;
        kernels(Device::cuda).fill(weight, 0.5);
      }
      trainer.check_replicas();
    });
  });
}

}  // namespace

TEST_CASE("device: optimizer state on a GPU is compared in turns, and all of it before a save") {
  GptOptions o = training_options("dp=2", 2);
  o.model.config.layers = 1;
  o.model.config.width = 16;
  o.precision.device = name(Device::cuda);
  o.precision.dtype = DType::bf16;
  resolve(o, 2);
  const cuda::ScopedEmulatedDevice device;
  run_thread_ranks(2, 1, std::chrono::minutes(30), [&](std::shared_ptr<ProcessGroup> world) {
    const auto mesh = std::make_shared<const DeviceMesh>(staged(std::move(world)), o.mesh.shape);
    Trainer trainer(make_gpt(o, o.model.config, mesh), o);
    for (StateTensor& state : trainer.optimizer().state()) {
      if (state.name != "v") continue;
      if (mesh->rank() == 1) kernels(Device::cuda).fill(state.value, 0.5);
      CHECK_THROWS_AS(trainer.check_replicas(), Error);
      int found = 0;
      for (std::int64_t turn = 100; turn < 108; ++turn) {
        try {
          trainer.check_replicas(turn);
        } catch (const Error& error) {
          CHECK_MESSAGE(std::string(error.what()).find(state.full_name()) != std::string::npos, error.what());
          ++found;
        }
      }
      CHECK(found == 1);
      if (mesh->rank() == 1) kernels(Device::cuda).fill(state.value, 0);
    }
    trainer.check_replicas();
  });
}

TEST_CASE("device: copies of weights on a GPU are compared") {
  for (const std::int64_t zero : {0, 1}) {
    CHECK(compared(zero, false) == "");
    const std::string found = compared(zero, true);
    CHECK_MESSAGE(found.find("differs between rank 0 and rank 1") != std::string::npos, found);
  }
}
