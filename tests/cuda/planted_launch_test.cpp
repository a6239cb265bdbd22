// Planted mistakes that a GPU or its driver refuses before a kernel runs, or that leave a block waiting for registers:
// more threads than __launch_bounds__ allow, setmaxnreg beyond the registers of the block, tensor maps that
// cuTensorMapEncodeTiled refuses.
// Read next: cuda/emu/launch.h, cuda/emu/registers.cpp, cuda/emu/tensor_map.cpp.
#include <doctest/doctest.h>

#include "cuda/device/tensor_map.h"
#include "tests/cuda/support.h"

using namespace trireme;
using namespace trireme::cuda;
using namespace cuda_test;

namespace planted_launch_test {
namespace {

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

// ---- launch bounds --------------------------------------------------------------------------------------------------

void unbounded(int* out) { out[threadIdx.x] = 1; }
__global__ void __launch_bounds__(96) bounded(int* out) { out[threadIdx.x] = 1; }
template <int kThreads, int kBlocks>
__global__ void __launch_bounds__(kThreads, kBlocks) bounded_template(int* out) {
  out[threadIdx.x] = 1;
}

std::string launch_threads(void (*kernel)(int*), unsigned threads) {
  return error_of([&] {
    Buffer<int> out(threads);
    launch({"bounded", {1, 1, 1}, {threads, 1, 1}}, kernel, out.data());
  });
}

// ---- setmaxnreg -----------------------------------------------------------------------------------------------------

/// The first warp group goes down to `Down` registers (0: it keeps its own), then the others up to `Up`.
template <int Down, int Up>
void exchange_registers() {
  if (threadIdx.x >= 128)
    set_max_registers_up<Up>();
  else if constexpr (Down > 0)
    set_max_registers_down<Down>();
}
template <int Groups, int Blocks, int Down, int Up>
__global__ void __launch_bounds__(128 * Groups, Blocks) exchange() {
  exchange_registers<Down, Up>();
}
template <int Down, int Up>
__global__ void exchange_without_bounds() {
  exchange_registers<Down, Up>();
}
__global__ void __launch_bounds__(256, 1) one_warp_gives() {
  if (threadIdx.x < 32) set_max_registers_down<24>();
}

std::string launch_groups(void (*kernel)(), unsigned groups) {
  return error_of([&] { launch({"exchange", {1, 1, 1}, {128 * groups, 1, 1}}, kernel); });
}

// ---- tensor maps ----------------------------------------------------------------------------------------------------

/// A map that the driver accepts: [2, 100, 200] of 16-bit values, tiles of [1, 64, 64].
struct Map {
  std::size_t offset = 0;  ///< of the first byte
  std::array<std::int64_t, 3> size{200, 100, 2};
  std::array<std::int64_t, 2> stride{400, 40000};
  std::array<int, 3> box{64, 64, 1};

  std::string encode() const {
    return error_of([&] {
      alignas(16) static std::byte memory[32];
      encode_tiled<3>("test", "x", memory + offset, size, stride, box);
    });
  }
};

}  // namespace

TEST_CASE("planted launch: more threads than the launch bounds allow") {
  CHECK(launch_threads(unbounded, 1024) == "");
  CHECK(launch_threads(bounded, 96) == "");
  CHECK(launch_threads(bounded_template<256, 2>, 256) == "");
  CHECK(launch_threads(bounded_template<1, 1>, 1) == "");
  if (!emu::has_launch_bounds) return;
  CHECK(has(launch_threads(bounded, 97), "[bounded] 97 threads per block; the kernel's __launch_bounds__ allow 96"));
  CHECK(has(launch_threads(bounded_template<256, 2>, 288), "__launch_bounds__ allow 256"));
  CHECK(has(launch_threads(bounded_template<1, 1>, 2), "__launch_bounds__ allow 1;"));
  const auto address = reinterpret_cast<const void*>(&bounded_template<256, 2>);
  CHECK(emu::launch_bounds_of(address).threads == 256);
  CHECK(emu::launch_bounds_of(address).blocks == 2);
  CHECK(emu::launch_bounds_of(reinterpret_cast<const void*>(&bounded)).blocks == 0);
}

TEST_CASE("planted launch: setmaxnreg within the registers of the block, and beyond") {
  cuda_test::under_schedules([] {
    CHECK(launch_groups(exchange<3, 1, 40, 232>, 3) == "");
    CHECK(launch_groups(exchange<3, 1, 24, 240>, 3) == "");
    CHECK(launch_groups(exchange<4, 1, 32, 160>, 4) == "");
    CHECK(launch_groups(exchange<2, 1, 0, 256>, 2) == "");
    if (!emu::has_launch_bounds) return;
    // 384 threads start with 168 registers each, so the block has 64512 of the multiprocessor's 65536.
    const std::string beyond = launch_groups(exchange<3, 1, 32, 240>, 3);
    CHECK(has(beyond, "deadlock"));
    CHECK(has(beyond, "setmaxnreg.inc 240 needs more registers than are left"));
    CHECK(has(beyond, "of the 64512 that the block was launched with"));
    // Two blocks per multiprocessor: 128 registers each.
    CHECK(has(launch_groups(exchange<2, 2, 24, 240>, 2), "setmaxnreg.inc 240 can never succeed"));
    // Fewer threads than the bounds allow bring fewer registers.
    CHECK(has(launch_groups(exchange<3, 1, 144, 200>, 2), "of the 43008 that the block was launched with"));
    CHECK(has(launch_groups(exchange_without_bounds<24, 240>, 2), "in a kernel without __launch_bounds__"));
  });
}

TEST_CASE("planted launch: setmaxnreg with a wrong number, or by a part of a warp group") {
  CHECK(has(launch_groups(exchange<2, 1, 0, 252>, 2), "expected a multiple of 8 from 24 to 256"));
  CHECK(has(launch_groups(exchange<2, 1, 16, 232>, 2), "expected a multiple of 8 from 24 to 256"));
  CHECK(has(launch_groups(exchange<2, 1, 0, 264>, 2), "expected a multiple of 8 from 24 to 256"));
  CHECK(has(launch_groups(exchange<2, 1, 0, 40>, 2), "expected at least 256"));
  CHECK(has(launch_groups(one_warp_gives, 2), "threads 0-31 wait for setmaxnreg.dec"));
}

TEST_CASE("planted launch: tensor maps that the driver refuses") {
  CHECK(Map{}.encode() == "");
  CHECK(Map{.size = {std::int64_t{1} << 32, 1, 1}, .stride = {(std::int64_t{1} << 40) - 16, 0}}.encode() == "");
  CHECK(Map{.box = {64, 256, 256}}.encode() == "");
  CHECK(
      has(Map{.offset = 8}.encode(), "[test] cuTensorMapEncodeTiled refuses x: it begins 8 bytes after a multiple of"));
  CHECK(has(Map{.size = {200, 0, 2}}.encode(), "dim 1 has 0 elements; expected 1 to 2^32"));
  CHECK(has(Map{.size = {200, 100, (std::int64_t{1} << 32) + 1}}.encode(), "dim 2 has 4294967297 elements"));
  CHECK(has(Map{.stride = {408, 40800}}.encode(), "the stride of dim 1 is 408 bytes; expected a multiple of 16"));
  CHECK(has(Map{.stride = {400, std::int64_t{1} << 40}}.encode(), "the stride of dim 2 is 1099511627776 bytes"));
  CHECK(has(Map{.stride = {-400, 40000}}.encode(), "the stride of dim 1 is -400 bytes"));
  CHECK(has(Map{.box = {64, 257, 1}}.encode(), "dim 1 of the box has 257 elements; expected 1 to 256"));
  CHECK(has(Map{.box = {64, 64, 0}}.encode(), "dim 2 of the box has 0 elements"));
  CHECK(has(Map{.box = {12, 64, 1}}.encode(), "a row of the box has 24 bytes; expected a multiple of 16"));
  CHECK(has(Map{.box = {72, 64, 1}}.encode(), "a row of the box has 144 bytes; expected at most 128, the span"));
}

TEST_CASE("planted launch: a map's span is that of its swizzle, and it has one to four dims") {
  TensorMap map;
  map.element_bytes = 4;
  map.rank = 2;
  map.size = {64, 64};
  map.stride = {4, 256};
  map.box = {16, 8};
  const auto encode = [&] { return error_of([&] { emu::check_tensor_map("test", "x", map); }); };
  map.swizzle = Swizzle::b64;
  CHECK(encode() == "");
  map.swizzle = Swizzle::b32;
  CHECK(has(encode(), "a row of the box has 64 bytes; expected at most 32"));
  map.swizzle = Swizzle::none;
  map.box = {256, 8};
  CHECK(encode() == "");
  map.rank = 0;
  CHECK(has(encode(), "0 dims; expected 1 to 4"));
}

}  // namespace planted_launch_test
