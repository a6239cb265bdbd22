// Launches against the limits of a device, by the emulator's profiles of an H100 and an A100; and how many blocks
// persistent kernels start.
#include <doctest/doctest.h>

#include "cuda/device/persistent.h"
#include "cuda/kernels/gemm.h"
#include "cuda/kernels/norm.h"
#include "tests/cuda/attention_cases.h"

using namespace trireme;
using namespace trireme::cuda;
using namespace cuda_test;
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

/// c [m, n] = a b of random matrices by `run`.
template <class Run>
std::string error_of_product(int m, int n, int k, Buffer<bf16>& c, Run&& run) {
  Buffer<bf16> a(static_cast<std::size_t>(m * k)), b(static_cast<std::size_t>(k * n));
  a.fill_random(1);
  b.fill_random(2);
  return error_of([&] { run(Gemm<bf16, bf16>{Form::nn, m, n, k, a.data(), k, b.data(), n, c.data(), n}); });
}

/// Forward and backward with the widest heads, which need the most shared memory.
template <class T, class Forward, class Backward>
std::string error_of_attention(Forward&& forward, Backward&& backward) {
  cuda_test::AttentionProblem<T> x({1, 1, 1, 128, 3, 5, true});
  return error_of([&] {
    forward(x.forward());
    backward(x.backward());
  });
}

/// Sets the margin of persistent kernels while it lives.
struct ScopedMargin {
  explicit ScopedMargin(int free) { multiprocessors_kept_free = free; }
  ~ScopedMargin() { multiprocessors_kept_free = 0; }
  ScopedMargin(const ScopedMargin&) = delete;
  ScopedMargin& operator=(const ScopedMargin&) = delete;
};

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

TEST_CASE("limits: kernels for sm_80 fit an A100, at their largest") {
  const emu::ScopedLimits limits(emu::a100);
  Buffer<bf16> c(1024 * 1024);
  CHECK(error_of_product(1024, 1024, 8, c, [](const auto& p) { gemm_sm80(p); }).empty());
  CHECK(error_of_attention<bf16>([](const auto& p) { attention_forward_sm80(p); },
                                 [](const auto& p) { attention_backward_sm80(p); })
            .empty());
  CHECK(error_of_attention<float>([](const auto& p) { attention_forward_f32(p); },
                                  [](const auto& p) { attention_backward_f32(p); })
            .empty());
}

TEST_CASE("limits: the widest norm depends on the device") {
  CHECK(norm_max_width() == 29040);
  const emu::ScopedLimits limits(emu::a100);
  CHECK(norm_max_width() == 20848);
  const std::string error = error_of([] {
    NormForward<float> norm{};
    norm.rows = 1;
    norm.width = 24000;
    norm_forward(norm);
  });
  CHECK(contains(error, "width 24000; expected 1 to 20848"));
  CHECK(contains(error, "166912 bytes"));
}

TEST_CASE("limits: kernels for sm_90a are refused on an A100") {
  const emu::ScopedLimits limits(emu::a100);
  Buffer<bf16> c(64);
  const std::string of_product = error_of_product(8, 8, 8, c, [](const auto& p) { gemm_sm90(p); });
  CHECK(contains(of_product, "the device has compute capability 8.0; expected 9.0 (Hopper)"));
  CHECK(contains(error_of_attention<bf16>([](const auto& p) { attention_forward_sm90(p); }, [](const auto&) {}),
                 "expected 9.0 (Hopper)"));
}

TEST_CASE("persistent kernels: multiprocessors that are kept free, and the same bits") {
  CHECK(persistent_blocks(2) == 2);
  CHECK(persistent_blocks(100) == 3);
  CHECK(persistent_blocks(100, 2) == 6);
  const ScopedMargin margin(1);
  CHECK(persistent_blocks(100) == 2);
  CHECK(persistent_blocks(100, 2) == 4);
  keep_multiprocessors_free(2);
  keep_multiprocessors_free(1);  // the larger one holds
  CHECK(persistent_blocks(100) == 1);
  keep_multiprocessors_free(16);  // more than the device has
  CHECK(persistent_blocks(100) == 1);

  Buffer<bf16> c(200 * 136), with_margin(200 * 136);
  const auto product = [](const auto& p) { gemm_sm90(p, nullptr, Tile90::m64n64); };
  CHECK(error_of_product(200, 136, 72, with_margin, product).empty());
  cuda_test::AttentionProblem<bf16> x({1, 2, 1, 64, 400, 400, true}), y({1, 2, 1, 64, 400, 400, true});
  attention_forward_sm90(y.forward());
  multiprocessors_kept_free = 0;
  CHECK(error_of_product(200, 136, 72, c, product).empty());
  attention_forward_sm90(x.forward());
  CHECK(cuda_test::same_bits(c, with_margin));
  CHECK(cuda_test::same_bits(x.out, y.out));
}

}  // namespace limits_test
