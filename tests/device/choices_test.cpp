// gpu_choices(): the kernels that the table before training and --print-config name are those that a run takes.
#include <doctest/doctest.h>

#include "core/error.h"
#include "cuda/runtime/emulated.h"
#include "cuda/selection.h"

#include "train/gpt/gpu_choices.h"
#include "train/gpt/validate_gpt.h"

using namespace trireme;

namespace {

GptOptions options(DType dtype, std::int64_t width, std::int64_t heads) {
  GptOptions o;
  o.model.config.width = width;
  o.model.config.heads = heads;
  o.model.config.context = 16;
  o.batch.micro_batch = 2;
  o.precision.dtype = dtype;
  o.precision.device = name(Device::cuda);
  resolve(o, 1);
  return o;
}

/// The selection belongs to the process: it is reset for the cases that follow.
struct Selections {
  ~Selections() {
    cuda::select_gemm("auto");
    cuda::select_attention("auto");
  }
};

}  // namespace

TEST_CASE("choices: what auto takes on this device") {
  const cuda::ScopedEmulatedDevice device;
  const Selections selections;
  const GpuChoices of_bf16 = gpu_choices(options(DType::bf16, 32, 2), 100);
  CHECK(of_bf16.products == "sm80");
  CHECK(of_bf16.attention == "sm80");
  const GpuChoices of_f32 = gpu_choices(options(DType::f32, 32, 2), std::nullopt);
  CHECK(of_f32.products == "f32");
  CHECK(of_f32.attention == "f32");
}

TEST_CASE("choices: trireme takes of our own kernels what auto does, in every dtype") {
  const cuda::ScopedEmulatedDevice device;
  const Selections selections;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    GptOptions o = options(dtype, 36, 2);
    const GpuChoices by_auto = gpu_choices(o, 100);
    o.precision.gemm = o.precision.attention = "trireme";
    CHECK_NOTHROW(validate(o));
    const GpuChoices ours = gpu_choices(o, 100);
    CHECK(cuda::selected_gemm() == "trireme");
    CHECK(cuda::selected_attention() == "trireme");
    CHECK(ours.products == by_auto.products);
    CHECK(ours.attention == by_auto.attention);
  }
  GptOptions o = options(DType::f32, 32, 2);
  o.precision.gemm = "sm80";
  CHECK_THROWS_WITH_AS(validate(o), doctest::Contains("expected --gemm auto or trireme"), Error);
}

TEST_CASE("choices: a kernel asked for by name refuses before the first step what it cannot take") {
  const cuda::ScopedEmulatedDevice device;
  const Selections selections;
  GptOptions o = options(DType::bf16, 32, 2);
  o.precision.gemm = "sm90";
  CHECK(gpu_choices(o, std::nullopt).products == "sm90");
  o = options(DType::bf16, 36, 2);
  o.precision.gemm = "sm90";
  CHECK_THROWS_WITH_AS(gpu_choices(o, std::nullopt),
                       doctest::Contains("--gemm sm90 cannot take a call: rows of a are 36 elements apart"), Error);
}

TEST_CASE("choices: heads that attention on a GPU cannot take are refused with other options, in every dtype") {
  const cuda::ScopedEmulatedDevice device;
  const Selections selections;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    GptOptions o = options(dtype, 136, 1);
    CHECK_THROWS_WITH_AS(
        validate(o),
        doctest::Contains("--width 136 / --heads 1 = 136 features a head, more than attention on a GPU "
                          "takes; expected at most 128; use --heads 2 or more, or --device cpu"),
        Error);
    CHECK_THROWS_AS(validate_heads(o.model.config, Device::cuda), Error);  // as called by programs that load a model
    o = options(dtype, 128, 1);
    CHECK_NOTHROW(validate(o));
    o = options(dtype, 136, 1);
    o.precision.device = name(Device::cpu);
    CHECK_NOTHROW(validate(o));
  }
}

TEST_CASE("choices: notes, on a GPU alone") {
  const cuda::ScopedEmulatedDevice device;
  const Selections selections;
  GptOptions o = options(DType::bf16, 32, 2);
  const auto notes = gpu_choice_notes(o);
  REQUIRE(notes.size() == 2);
  CHECK(notes[0] == std::pair<std::string, std::string>("gemm", "on this GPU: sm80"));
  o.precision.device = name(Device::cpu);
  CHECK(gpu_choice_notes(o).empty());
}
