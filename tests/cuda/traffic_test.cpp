// Bank conflicts and sectors, counted by the emulator, of kernels whose counts are known by hand; and what is said of
// watched memory that has a name. Compiled for the race build, without the optimisations that join or move loads.
// Read next: cuda/emu/traffic.h.
#include <doctest/doctest.h>

#include <string>

#include "cuda/device/device.h"
#include "cuda/device/tensor_map.h"
#include "cuda/emu/traffic.h"
#include "tests/cuda/report.h"
#include "tests/cuda/support.h"

using namespace trireme;
using namespace trireme::cuda;
using cuda_test::error_of;

namespace traffic_test {
namespace {

int thread() { return static_cast<int>(threadIdx.x); }

/// Floats in watched memory with a name, from `offset` elements after a multiple of 256 bytes.
class Floats {
 public:
  explicit Floats(const char* name, std::size_t count, std::size_t offset = 0, emu::Use use = emu::Use::any)
      : memory_(static_cast<float*>(cuda_test::device_allocate((count + kZone) * sizeof(float)))),
        begin_(memory_ + kZone / 2 + offset),
        watched_(memory_, {(count + kZone) * sizeof(float), (kZone / 2 + offset) * sizeof(float),
                           (kZone / 2 + offset + count) * sizeof(float), name, sizeof(float), use}) {
    for (std::size_t i = 0; i < count + kZone; ++i) memory_[i] = 1;
  }
  ~Floats() { cuda_test::device_free(memory_); }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;
  float* data() { return begin_; }

 private:
  static constexpr std::size_t kZone = 4096;
  float *memory_, *begin_;
  emu::WatchedMemory watched_;
};

template <class... Parameters, class... Arguments>
emu::Traffic counted(unsigned blocks, unsigned threads, void (*kernel)(Parameters...), const Arguments&... arguments) {
  const emu::ScopedTraffic traffic;
  launch({"counted", {blocks, 1, 1}, {threads, 1, 1}}, kernel, arguments...);
  return traffic.sum();
}

// ---- global memory --------------------------------------------------------------------------------------------------

__global__ void strided(const float* x, float* y, int stride) { y[thread()] = x[stride * thread()]; }
__global__ void vectors(const float* x, float* y) {
  using Four = Pack<float, 4>;
  store_vector(y + 4 * thread(), load_vector<Four>(x + 4 * thread()));
}
__global__ void in_a_loop(const float* x, float* y, int n) {
  float sum = 0;
  for (int i = thread(); i < n; i += 32) sum += x[i];
  y[thread()] = sum;
}
__global__ void odd_lanes(const float* x, float* y) {
  float value = 0;
  if (thread() % 2 == 1) value = x[thread()];
  y[thread()] = value;
}
__global__ void two_arrays(const float* x, const float* z, float* y) {
  const float* const from = thread() < 16 ? x : z;
  y[thread()] = from[thread()];
}

// ---- shared memory --------------------------------------------------------------------------------------------------

__global__ void banks(float* y, int stride) {
  TRIREME_SHARED(float, slab, 32 * 33);
  for (int i = thread(); i < 32 * 33; i += 32) slab[i] = 0;  // 33 accesses, no conflict
  sync_threads();
  y[thread()] = slab[stride * thread()];
}
__global__ void broadcast(float* y) {
  TRIREME_SHARED(float, slab, 32);
  slab[thread()] = 1;
  sync_threads();
  y[thread()] = slab[7];
}
__global__ void wide(float* y, int pitch) {
  using Four = Pack<float, 4>;
  TRIREME_SHARED(float, slab, 32 * 36);
  store_vector(slab + pitch * thread(), Four{});
  y[thread()] = 0;
}
__global__ void by_copy(const float* x, float* y) {
  TRIREME_SHARED(float, slab, 128);
  cp_async_16(slab + 4 * thread(), x + 4 * thread());
  cp_async_commit();
  cp_async_wait<0>();
  sync_threads();
  y[thread()] = slab[thread()];
}
__global__ void by_matrix(float* y, int pitch) {  // rows of 16 bytes, `pitch` bytes apart
  TRIREME_SHARED(float, slab, 32 * 32);
  for (int i = thread(); i < 32 * 32; i += 32) slab[i] = 0;
  sync_threads();
  std::uint32_t registers[4];
  ldmatrix_x4(registers, reinterpret_cast<const std::byte*>(slab) + pitch * thread());
  y[thread()] = static_cast<float>(registers[0] + registers[1] + registers[2] + registers[3]);
}

/// One copy of 8 rows of 32 floats.
__global__ void by_tma(TensorMap map, float* y) {
  TRIREME_DYNAMIC_SHARED(memory, 128);
  TRIREME_SHARED(std::uint64_t, full, 1);
  if (thread() == 0) {
    mbarrier_init(full, 1);
    fence_mbarrier_init();
    mbarrier_arrive_expect(full, 8 * 32 * 4);
    tma_load_2d(memory, map, 0, 0, full);
  }
  sync_threads();
  mbarrier_wait(full, 0);
  y[thread()] = reinterpret_cast<const float*>(memory)[thread()];
}

/// Copies `steps` pieces for each thread, and reads each; `ahead`: while the next one is on its way.
__global__ void stream(const float* x, float* y, int steps, bool ahead) {
  TRIREME_SHARED(float, slab, 2 * 128);
  const auto copy = [&](int step) {
    cp_async_16(slab + step % 2 * 128 + 4 * thread(), x + 4 * thread());
    cp_async_commit();
  };
  copy(0);
  for (int step = 0; step < steps; ++step) {
    cp_async_wait<0>();
    sync_threads();
    if (ahead && step + 1 < steps) copy(step + 1);
    y[thread()] = slab[step % 2 * 128 + thread()];
    sync_threads();
    if (!ahead && step + 1 < steps) copy(step + 1);
  }
}
__global__ void loads(const __grid_constant__ TensorMap map, float* y, int together) {
  TRIREME_DYNAMIC_SHARED(memory, 1024);
  TRIREME_SHARED(std::uint64_t, barrier, 1);
  if (thread() > 0) return;
  mbarrier_init(barrier, 1);
  fence_mbarrier_init();
  for (int load = 0; load < 4; load += together) {
    mbarrier_arrive_expect(barrier, together * 1024);
    for (int i = 0; i < together; ++i) tma_load_2d(memory + i * 1024, map, 0, 0, barrier);
    mbarrier_wait(barrier, static_cast<std::uint32_t>(load / together % 2));
  }
  y[0] = reinterpret_cast<const float*>(memory)[0];
}

/// The lanes of both halves come to the same line in different rounds of a loop, but always after a barrier.
__global__ void divergent(float* y) {
  TRIREME_SHARED(float, slab, 64);
  for (int round = 0; round < 2; ++round) {
    if (thread() / 16 == round) slab[thread()] = 1;
    sync_threads();
  }
  y[thread()] = slab[thread()];
}

std::uint64_t wavefronts_of_read(const emu::Traffic& traffic) {
  std::uint64_t sum = 0;
  for (const emu::InstructionTraffic& instruction : traffic.instructions)
    if (instruction.shared && !instruction.writes) sum += instruction.transactions;
  return sum;
}

__global__ void increments(float* x) { x[thread()] += 1; }
__global__ void shifted(const float* x, float* y) { y[thread()] = x[thread() + 1]; }

}  // namespace

TEST_CASE("traffic: sectors of a warp's load, by stride") {
  Floats x("x", 33 * 32), y("y", 32);
  for (const auto& [stride, sectors] : {std::pair{0, 1}, {1, 4}, {2, 8}, {3, 12}, {8, 32}, {32, 32}, {33, 32}}) {
    CAPTURE(stride);
    const emu::Traffic traffic = counted(1, 32, strided, x.data(), y.data(), stride);
    CHECK(traffic.sectors("x", false) == static_cast<std::uint64_t>(sectors));
    CHECK(traffic.sectors("y", true) == 4);
    CHECK(traffic.sectors("y", false) == 0);
    CHECK(traffic.excess_sectors() == static_cast<std::uint64_t>(sectors) - (stride == 0 ? 1 : 4));
  }
}

TEST_CASE("traffic: a row that does not begin at a sector takes one sector more") {
  Floats x("x", 64, 1), y("y", 32);
  CHECK(counted(1, 32, strided, x.data(), y.data(), 1).sectors("x", false) == 5);
}

TEST_CASE("traffic: vectors, loops, lanes that stay away, two arrays") {
  Floats x("x", 256), z("z", 256), y("y", 128);
  const emu::Traffic wide_loads = counted(1, 32, vectors, x.data(), y.data());
  CHECK(wide_loads.sectors("x", false) == 16);
  CHECK(wide_loads.excess_sectors() == 0);
  const emu::Traffic loop = counted(1, 32, in_a_loop, x.data(), y.data(), 100);
  CHECK(loop.sectors("x", false) == 13);  // 3 x 4 for 32 lanes, 1 for four lanes
  CHECK(counted(1, 32, odd_lanes, x.data(), y.data()).sectors("x", false) == 4);
  const emu::Traffic both = counted(1, 32, two_arrays, x.data(), z.data(), y.data());
  CHECK(both.sectors("x", false) == 2);
  CHECK(both.sectors("z", false) == 2);
}

TEST_CASE("traffic: schedules make no difference") {
  Floats x("x", 64), y("y", 64);
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const emu::ScopedSchedule schedule({seed});
    CHECK(counted(1, 64, in_a_loop, x.data(), y.data(), 32).sectors("x", false) == 4);
    Floats out("out", 32);
    const emu::Traffic traffic = counted(1, 32, banks, out.data(), 2);
    CHECK(traffic.bank_conflicts() == 1);
  }
}

TEST_CASE("traffic: wavefronts of a warp's load from shared memory, by stride") {
  Floats y("y", 32);
  for (const auto& [stride, wavefronts] :
       {std::pair{0, 1}, {1, 1}, {2, 2}, {3, 1}, {4, 4}, {16, 16}, {32, 32}, {33, 1}}) {
    CAPTURE(stride);
    const emu::Traffic traffic = counted(1, 32, banks, y.data(), stride);
    CHECK(wavefronts_of_read(traffic) == static_cast<std::uint64_t>(wavefronts));
    CHECK(traffic.wavefronts() == static_cast<std::uint64_t>(wavefronts) + 33);
    CHECK(traffic.bank_conflicts() == static_cast<std::uint64_t>(wavefronts) - 1);
    CHECK(traffic.barriers == 1);
    CHECK(traffic.shared_bytes == 32 * 33 * 4);
  }
  CHECK(counted(1, 32, broadcast, y.data()).bank_conflicts() == 0);
  CHECK(counted(1, 32, divergent, y.data()).wavefronts() == 3);
}

TEST_CASE("traffic: 16 bytes a lane take four wavefronts, and more if eight lanes share banks") {
  Floats y("y", 32);
  const emu::Traffic dense = counted(1, 32, wide, y.data(), 4);
  CHECK(dense.wavefronts() == 4);
  CHECK(dense.bank_conflicts() == 0);
  CHECK(counted(1, 32, wide, y.data(), 36).bank_conflicts() == 0);
  CHECK(counted(1, 32, wide, y.data(), 32).wavefronts() == 32);
  CHECK(counted(1, 32, wide, y.data(), 8).bank_conflicts() == 4);
}

TEST_CASE("traffic: copies and matrices") {
  Floats x("x", 128), y("y", 32);
  const emu::Traffic copy = counted(1, 32, by_copy, x.data(), y.data());
  CHECK(copy.sectors("x", false) == 16);
  CHECK(copy.wavefronts() == 5);
  CHECK(copy.bank_conflicts() == 0);
  Floats rows("rows", 8 * 64);
  TensorMap map;
  map.base = reinterpret_cast<std::byte*>(rows.data());
  map.rank = 2;
  map.element_bytes = 4;
  map.size = {64, 8};
  map.stride = {4, 4 * 64};
  map.box = {32, 8};
  const emu::ScopedTraffic bulk;
  launch({"by_tma", {1, 1, 1}, {32, 1, 1}, 8 * 32 * 4}, by_tma, map, y.data());
  CHECK(bulk.sum().sectors("rows", false) == 8 * 4);
  CHECK(bulk.sum().excess_sectors() == 0);
  CHECK(counted(1, 32, by_matrix, y.data(), 16).bank_conflicts() == 0);
  CHECK(counted(1, 32, by_matrix, y.data(), 128).bank_conflicts() == 4 * 7);
}

TEST_CASE("traffic: what is in flight while shared memory is read, and TMA loads at the same time") {
  Floats x("x", 256), y("y", 32);
  const emu::Traffic ahead = counted(1, 32, stream, x.data(), y.data(), 4, true);
  CHECK(ahead.shared_reads == 4 * 32);
  CHECK(ahead.reads_beside_copies == 3 * 32);
  CHECK(counted(1, 32, stream, x.data(), y.data(), 4, false).reads_beside_copies == 0);
  const TensorMap map = encode_tiled<2>("test", "x", x.data(), {64, 8}, {128}, {64, 8});
  for (const int together : {1, 2, 4}) {
    const emu::ScopedTraffic traffic;
    launch({"loads", {1, 1, 1}, {32, 1, 1}, 4 * 1024}, loads, map, y.data(), together);
    CHECK(traffic.sum().most_tma_loads == static_cast<std::uint64_t>(together));
  }
}

TEST_CASE("traffic: lines of many instructions at once") {
  Floats x("x", 64), y("y", 32);
  const emu::Traffic traffic = counted(1, 32, strided, x.data(), y.data(), 1);
  std::vector<std::uint32_t> pcs;
  for (const emu::InstructionTraffic& instruction : traffic.instructions) pcs.push_back(instruction.pc);
  REQUIRE(pcs.size() == 2);
  emu::look_up_lines(pcs);
  for (const std::uint32_t pc : pcs) CHECK(emu::lines_of(pc).starts_with("traffic_test.cpp:"));
}

TEST_CASE("watched memory with a name: elements, inputs and outputs") {
  Floats in("in", 32, 0, emu::Use::input), out("out", 32, 0, emu::Use::output), y("y", 32);
  const auto says = [](const std::string& report, const char* text) {
    CHECK_MESSAGE(report.find(text) != std::string::npos, report);
  };
  says(error_of([&] { counted(1, 32, increments, in.data()); }), "in[0], which is an input: kernels may only read it");
  says(error_of([&] { counted(1, 32, increments, out.data()); }), "out[0], which nobody wrote before");
  says(error_of([&] { counted(1, 32, shifted, in.data(), y.data()); }), "in[32], outside of in [32]");
  CHECK(error_of([&] { counted(1, 32, strided, in.data(), out.data(), 1); }) == "");
}

}  // namespace traffic_test
