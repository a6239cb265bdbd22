// Launches against the limits of a device, by the emulator's profiles of an H100 and an A100.
#include <doctest/doctest.h>

#include "cuda/device/device.h"
#include "tests/cuda/support.h"

using namespace trireme;
using namespace trireme::cuda;
using cuda_test::Buffer;
using cuda_test::error_of;
using testing::contains;

namespace limits_test {
namespace {

/// 128 bytes of static shared memory, and what the launch asks for.
__global__ void sum_in_shared(const float* in, float* out) {
  TRIREME_DYNAMIC_SHARED(memory, 16);
  TRIREME_SHARED(float, scratch, 32);
  auto* const values = reinterpret_cast<float*>(memory);
  values[threadIdx.x] = in[threadIdx.x];
  const float sum = reduce_block<Sum>(values[threadIdx.x], scratch);
  if (threadIdx.x == 0) *out = sum;
}

/// One block with `bytes` of dynamic shared memory; returns the error, or nothing.
std::string error_of_launch(std::size_t bytes) {
  Buffer<float> in(32), out(1);
  in.fill(1);
  return error_of([&] { launch({"test", {1, 1, 1}, {32, 1, 1}, bytes}, sum_in_shared, in.data(), out.data()); });
}

std::string error_without_opt_in(std::size_t bytes) {
  Buffer<float> in(32), out(1);
  in.fill(1);
  const emu::BlockShape shape = {"test", {1, 1, 1}, {32, 1, 1}, bytes};
  return error_of([&] { emu::run_grid(shape, [&] { sum_in_shared(in.data(), out.data()); }); });
}

}  // namespace

TEST_CASE("emulator: without the opt-in a block has 48 KB of static and dynamic shared memory together") {
  CHECK(error_without_opt_in(48 * 1024 - 128).empty());
  CHECK(contains(error_without_opt_in(48 * 1024 - 112), "49168 bytes of static and dynamic shared memory"));
  CHECK(contains(error_without_opt_in(48 * 1024 + 16), "49168 bytes of dynamic shared memory"));
}

TEST_CASE("emulator: with the opt-in a block has as much shared memory as the device allows") {
  CHECK(error_of_launch(227 * 1024 - 128).empty());
  CHECK(contains(error_of_launch(227 * 1024 - 112), "232464 bytes of shared memory; a block has at most 232448"));
  const emu::ScopedLimits limits(emu::a100);
  CHECK(error_of_launch(163 * 1024 - 128).empty());
  CHECK(contains(error_of_launch(163 * 1024 - 112), "a block has at most 166912"));
}

}  // namespace limits_test
