// Each function of the device header does what the PTX manual says: in the emulator under every schedule, and on a GPU,
// where the same tests check the inline assembly of cuda/device/nvcc.h.
#include <doctest/doctest.h>

#include "cuda/device/device.h"
#include "tests/cuda/support.h"

using namespace trireme;
using namespace trireme::cuda;
using namespace cuda_test;

namespace emu_test {
namespace {

constexpr std::size_t kWholeMemory = 227 * 1024;

__device__ int thread_index() { return static_cast<int>(threadIdx.x); }

LaunchConfig one_block(unsigned threads, std::size_t shared = 0) {
  return {"test", {1, 1, 1}, {threads, 1, 1}, shared};
}

__global__ void indices(int* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] += static_cast<int>(1000 * block + thread);
}

__global__ void reductions(const float* in, float* out) {
  TRIREME_SHARED(float, scratch, 32);
  const float sum = reduce_block<Sum>(in[threadIdx.x], scratch);
  out[threadIdx.x] = sum + reduce_block<Max>(in[threadIdx.x], scratch);
}

// ballot() is qualified because CUDA has a global ballot(), too.
__global__ void votes(std::uint32_t* out) {
  const std::uint32_t odd = trireme::cuda::ballot(thread_index() % 2 == 1);
  const int neighbour = shuffle_down(thread_index(), 1);
  out[threadIdx.x] = thread_index() < 16 ? trireme::cuda::ballot(thread_index() == 3, 0xffffU)
                                         : odd + static_cast<unsigned>(neighbour);
}

__global__ void copies(const float* in, float* out) {
  TRIREME_DYNAMIC_SHARED(raw, 16);
  auto* tile = reinterpret_cast<float*>(raw);
  for (int stage = 0; stage < 3; ++stage) {
    cp_async_16(tile + stage * 128 + 4 * thread_index(), in + stage * 128 + 4 * thread_index(), stage == 2 ? 8 : 16);
    cp_async_commit();
  }
  cp_async_wait<1>();
  sync_threads();
  for (int stage = 0; stage < 2; ++stage)
    for (int i = 0; i < 4; ++i)
      out[stage * 128 + i * 32 + thread_index()] = tile[stage * 128 + i * 32 + thread_index()];
  cp_async_wait<0>();
  sync_threads();
  for (int i = 0; i < 4; ++i) out[2 * 128 + i * 32 + thread_index()] = tile[2 * 128 + i * 32 + thread_index()];
}

/// Warp 0 produces, warp 1 consumes, through two slots guarded by mbarriers.
__global__ void ring(int* out, int rounds) {
#if TRIREME_HOPPER_CODE
  TRIREME_SHARED(int, slots, 2);
  TRIREME_SHARED(std::uint64_t, full, 2);
  TRIREME_SHARED(std::uint64_t, empty, 2);
  if (thread_index() == 0) {
    for (int i = 0; i < 2; ++i) {
      mbarrier_init(full + i, 1);
      mbarrier_init(empty + i, 32);
    }
    fence_mbarrier_init();
  }
  sync_threads();
  for (int i = 0; i < rounds; ++i) {
    const auto parity = static_cast<std::uint32_t>(i / 2 % 2);
    if (thread_index() == 0) {
      mbarrier_wait(empty + i % 2, parity ^ 1U);
      slots[i % 2] = i * i;
      mbarrier_arrive(full + i % 2);
    } else if (thread_index() >= 32) {
      mbarrier_wait(full + i % 2, parity);
      out[i * 32 + thread_index() - 32] = slots[i % 2];
      mbarrier_arrive(empty + i % 2);
    }
  }
#endif
}

__global__ void mma(const bf16* a, const bf16* b, float* d) {  // a [16, 16], b [16, 8] row-major, d [16, 8]
  TRIREME_SHARED(std::uint16_t, tile_a, 256);
  TRIREME_SHARED(std::uint16_t, tile_b, 128);
  for (int i = thread_index(); i < 256; i += 32) tile_a[i] = a[i].bits;
  for (int i = thread_index(); i < 128; i += 32) tile_b[i] = b[i].bits;
  sync_threads();
  std::uint32_t fa[4], fb[4];
  const int lane = thread_index();
  ldmatrix_x4(fa, tile_a + (lane % 16) * 16 + lane / 16 * 8);
  ldmatrix_x4_transposed(fb, tile_b + lane % 16 * 8);  // matrices 2 and 3 repeat 0 and 1
  float sum[4] = {0, 0, 0, 0};
  mma_m16n8k16<bf16>(sum, fa, fb);
  for (int i = 0; i < 4; ++i) d[(lane / 4 + 8 * (i / 2)) * 8 + lane % 4 * 2 + i % 2] = sum[i];
}

/// Shared memory of its own in every instantiation.
template <int N>
__device__ float* scratch_of() {
  TRIREME_SHARED(float, scratch, 32);
  return scratch;
}

#define TWO_ARRAYS(type, a, b, count) \
  TRIREME_SHARED(type, a, count);     \
  TRIREME_SHARED(type, b, count)

/// Four arrays of one size, two on one line, and two from one line of a template.
__global__ void four_arrays(float* out) {  // [4, 32]
  TWO_ARRAYS(float, a, b, 32);
  float *const c = scratch_of<1>(), *const d = scratch_of<2>();
  const int i = thread_index();
  float* const arrays[] = {a, b, c, d};
  for (int k = 0; k < 4; ++k) arrays[k][i] = static_cast<float>(k);
  sync_threads();
  for (int k = 0; k < 4; ++k) out[32 * k + i] = arrays[k][31 - i];
}

/// Writes the first and the last byte of as much dynamic shared memory as a block can have.
__global__ void whole_memory(int* out) {  // [2]
  TRIREME_DYNAMIC_SHARED(memory, 16);
  if (thread_index() != 0) return;
  memory[0] = std::byte{3};
  memory[kWholeMemory - 1] = std::byte{4};
  out[0] = static_cast<int>(memory[0]);
  out[1] = static_cast<int>(memory[kWholeMemory - 1]);
}

}  // namespace

TEST_CASE("emulator: equal declarations of shared memory are different arrays") {
  under_schedules([] {
    Buffer<float> out(4 * 32);
    launch(one_block(32), four_arrays, out.data());
    for (std::size_t i = 0; i < out.size(); ++i) CHECK(out.at(i) == static_cast<double>(i / 32));
  });
}

TEST_CASE("emulator: a block can have all 227 KiB as dynamic shared memory") {
  Buffer<int> out(2);
  launch(one_block(32, kWholeMemory), whole_memory, out.data());
  CHECK(out.value(0) == 3);
  CHECK(out.value(1) == 4);
}

TEST_CASE("emulator: every thread of every block runs once and knows its indices") {
  under_schedules([] {
    Buffer<int> out(2 * 3 * 2 * 24);
    out.fill(0);
    launch({"indices", {2, 3, 2}, {4, 3, 2}}, indices, out.data());
    for (std::size_t i = 0; i < out.size(); ++i) CHECK(out.value(i) == static_cast<int>(1000 * (i / 24) + i % 24));
  });
}

TEST_CASE("emulator: block reductions over 1 to 32 warps") {
  under_schedules([] {
    for (const unsigned threads : {32U, 64U, 96U, 1024U}) {
      Buffer<float> in(threads), out(threads);
      for (unsigned i = 0; i < threads; ++i) in.set(i, static_cast<float>(i));
      launch(one_block(threads), reductions, in.data(), out.data());
      const auto n = static_cast<double>(threads);
      for (unsigned i = 0; i < threads; ++i) CHECK(out.at(i) == n * (n - 1) / 2 + n - 1);
    }
  });
}

TEST_CASE("emulator: votes and shuffles, also of half a warp") {
  under_schedules([] {
    Buffer<std::uint32_t> out(32);
    launch(one_block(32), votes, out.data());
    for (unsigned i = 0; i < 32; ++i) CHECK(out.value(i) == (i < 16 ? 8U : 0xaaaaaaaaU + (i < 31 ? i + 1 : 31)));
  });
}

TEST_CASE("emulator: cp.async groups complete in order, and fill with zeros") {
  under_schedules([] {
    Buffer<float> in(384), out(384);
    in.fill_random(1);
    launch(one_block(32, 384 * 4), copies, in.data(), out.data());
    for (std::size_t i = 0; i < 384; ++i) CHECK(out.at(i) == (i < 256 || i % 4 < 2 ? in.at(i) : 0.0));
  });
}

TEST_CASE("emulator: a ring of slots between a producer and a consumer warp, by mbarriers") {
  under_schedules([] {
    Buffer<int> out(7 * 32);
    launch(one_block(64), ring, out.data(), 7);
    for (std::size_t i = 0; i < out.size(); ++i) CHECK(out.value(i) == static_cast<int>(i / 32 * (i / 32)));
  });
}

TEST_CASE("emulator: ldmatrix and mma.sync against a plain loop") {
  under_schedules([] {
    Buffer<bf16> a(256), b(128);
    Buffer<float> d(128);
    a.fill_random(1);
    b.fill_random(2);
    launch(one_block(32), mma, a.data(), b.data(), d.data());
    for (std::size_t m = 0; m < 16; ++m)
      for (std::size_t n = 0; n < 8; ++n) {
        double sum = 0;
        for (std::size_t k = 0; k < 16; ++k) sum += a.at(m * 16 + k) * b.at(k * 8 + n);
        CHECK(d.at(m * 8 + n) == doctest::Approx(sum).epsilon(1e-5));
      }
  });
}

#if !defined(__CUDACC__)  // a GPU has other limits and messages
TEST_CASE("emulator: impossible launches are refused") {
  CHECK(error_of([] { launch(one_block(1056), indices, nullptr); }).find("1056 threads") != std::string::npos);
  CHECK(error_of([] {
          launch({"test", {1, 1, 1}, {1, 1, 65}}, indices, nullptr);
        }).find("65 threads in z") != std::string::npos);
  const std::string large = error_of([] {
    float value = 0;
    launch(one_block(32, 240 * 1024), copies, &value, &value);
  });
  CHECK(large.find("a block has at most 232448") != std::string::npos);
}
#endif

}  // namespace emu_test
