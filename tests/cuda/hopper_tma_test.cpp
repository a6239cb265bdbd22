// TMA on its own: tiles of two to four dims, loaded and stored, inside a tensor and over each of its edges; columns are
// multiples of 16 bytes, and stores do not begin before the tensor, as the hardware demands (cuda/emu/tma.cpp). Each
// element tells where it comes from, so a failure shows which one came instead.
// Read next: tests/cuda/hopper_wgmma_test.cpp.
#include <doctest/doctest.h>

#include <array>
#include <vector>

#include "tests/cuda/hopper_support.h"

using namespace trireme;
using namespace trireme::cuda;
using namespace cuda_test;

namespace hopper_tma_test {
namespace {

constexpr int kRows = 16, kColumns = 64, kTile = kRows * kColumns;
constexpr float kUntouched = 3000.0F;  // no coded value

struct At {
  int x, y, z, w;
};

/// Where element (row, column) of the tile lies in shared memory.
__device__ __forceinline__ f16* element(std::byte* memory, int row, int column) {
  const std::uint32_t begin = shared_address(memory);
  const std::uint32_t at = swizzled(Swizzle::b128, begin + static_cast<std::uint32_t>(128 * row + 2 * column));
  return reinterpret_cast<f16*>(memory + (at - begin));
}

template <int Rank>
__device__ __forceinline__ void load(std::byte* to, const TensorMap& map, At at, std::uint64_t* barrier) {
  if constexpr (Rank == 2) tma_load_2d(to, map, at.x, at.y, barrier);
  if constexpr (Rank == 3) tma_load_3d(to, map, at.x, at.y, at.z, barrier);
  if constexpr (Rank == 4) tma_load_4d(to, map, at.x, at.y, at.z, at.w, barrier);
}
template <int Rank>
__device__ __forceinline__ void store(const TensorMap& map, const std::byte* from, At at) {
  if constexpr (Rank == 2) tma_store_2d(map, from, at.x, at.y);
  if constexpr (Rank == 3) tma_store_3d(map, from, at.x, at.y, at.z);
  if constexpr (Rank == 4) tma_store_4d(map, from, at.x, at.y, at.z, at.w);
}

template <int Rank>
__global__ void load_tile(const __grid_constant__ TensorMap map, At at, float* out) {  // [16, 64]
#if TRIREME_HOPPER_CODE
  TRIREME_DYNAMIC_SHARED(memory, 1024);
  TRIREME_SHARED(std::uint64_t, barrier, 1);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    mbarrier_init(barrier, 1);
    fence_mbarrier_init();
  }
  sync_threads();
  if (thread == 0) {
    mbarrier_arrive_expect(barrier, 2 * kTile);
    load<Rank>(memory, map, at, barrier);
  }
  mbarrier_wait(barrier, 0);
  for (int i = thread; i < kTile; i += 128) out[i] = to_float(*element(memory, i / kColumns, i % kColumns));
#endif
}

template <int Rank>
__global__ void store_tile(const __grid_constant__ TensorMap map, At at, const f16* in) {  // [16, 64]
#if TRIREME_HOPPER_CODE
  TRIREME_DYNAMIC_SHARED(memory, 1024);
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < kTile; i += 128) *element(memory, i / kColumns, i % kColumns) = in[i];
  fence_async_proxy();
  sync_threads();
  if (thread != 0) return;
  store<Rank>(map, memory, at);
  tma_store_commit();
  tma_store_wait<0>();
#endif
}

/// A tensor in memory: extents and distances of its dims in elements, the innermost first.
struct Layout {
  int rank;
  std::array<int, 4> size, stride;
  std::size_t elements;

  /// The index of an element, or -1 outside.
  int index(std::array<int, 4> at) const {
    int index = 0;
    for (std::size_t d = 0; d < 4; ++d) {
      if (at[d] < 0 || at[d] >= size[d]) return -1;
      index += at[d] * stride[d];
    }
    return index;
  }
  /// Of row and column of a tile.
  int of_tile(At at, int row, int column) const { return index({at.x + column, at.y + row, at.z, at.w}); }
  std::string name(int i) const {
    std::string text;
    for (std::size_t d = 4; d-- > 0;)
      if (d < static_cast<std::size_t>(rank)) {
        text += fmt::format("{}{}", text.empty() ? "[" : ", ", i / stride[d]);
        i %= stride[d];
      }
    return text + "]";
  }
};

// The padding after 72 columns, and after the heads, must neither be read nor written.
const Layout kMatrix{2, {72, 40, 1, 1}, {1, 80, 3200, 3200}, 3200};
const Layout kStack{3, {72, 20, 2, 1}, {1, 80, 1600, 3200}, 3200};
const Layout kHeads{4, {72, 10, 2, 2}, {1, 152, 72, 1520}, 3040};

template <int Rank>
TensorMap map_of(const Layout& t, const f16* base) {
  if constexpr (Rank == 2) return encode_tiled<2>("hopper", "matrix", base, {72, 40}, {160}, {kColumns, kRows});
  if constexpr (Rank == 3)
    return tensor_map("hopper", TiledMatrix{"stack", base, t.size[1], t.size[0], t.stride[1], t.size[2], t.stride[2],
                                            kRows, kColumns});
  if constexpr (Rank == 4)
    return tensor_map("hopper",
                      TiledHeads{"heads", base, t.size[0], t.size[2], t.size[1], t.size[3], t.stride[1], kRows});
}

std::string name_of(const char* what, int rank, At at) {
  return fmt::format("TMA {} {}d at column {}, row {}, {}, {}", what, rank, at.x, at.y, at.z, at.w);
}

template <int Rank>
void check_load(const Layout& t, At at) {
  Buffer<f16> in(t.elements);
  for (std::size_t i = 0; i < t.elements; ++i) in.set(i, f16(coded(static_cast<int>(i))));
  Buffer<float> out(kTile);
  out.fill(kUntouched);
  launch({"load_tile", {1, 1, 1}, {128, 1, 1}, 2 * kTile}, load_tile<Rank>, map_of<Rank>(t, in.data()), at, out.data());
  const auto expected = [&](std::size_t i) {
    const int index = t.of_tile(at, static_cast<int>(i) / kColumns, static_cast<int>(i) % kColumns);
    return index < 0 ? 0.0 : static_cast<double>(coded(index));
  };
  compare({name_of("load", Rank, at), kTile, [&](std::size_t i) { return out.at(i); }, expected,
           [](std::size_t i) { return fmt::format("row {}, column {}", i / kColumns, i % kColumns); },
           [&](double value) {
             if (value == 0) return std::string("zero, as outside");
             return decoded(value) < 0 ? "no value of the tensor" : "element " + t.name(decoded(value));
           }});
}

template <int Rank>
void check_store(const Layout& t, At at) {
  Buffer<f16> in(kTile), out(t.elements);
  for (std::size_t i = 0; i < kTile; ++i) in.set(i, f16(coded(static_cast<int>(i))));
  out.fill(kUntouched);
  launch({"store_tile", {1, 1, 1}, {128, 1, 1}, 2 * kTile}, store_tile<Rank>, map_of<Rank>(t, out.data()), at,
         in.data());
  std::vector<double> expected(t.elements, static_cast<double>(kUntouched));
  for (int i = 0; i < kTile; ++i)
    if (const int index = t.of_tile(at, i / kColumns, i % kColumns); index >= 0)
      expected[static_cast<std::size_t>(index)] = static_cast<double>(coded(i));
  compare({name_of("store", Rank, at), t.elements, [&](std::size_t i) { return out.at(i); },
           [&](std::size_t i) { return expected[i]; },
           [&](std::size_t i) { return "element " + t.name(static_cast<int>(i)); },
           [](double value) {
             if (value == static_cast<double>(kUntouched)) return std::string("not written");
             const int i = decoded(value);
             return i < 0 ? "no value of the tile" : fmt::format("row {}, column {}", i / kColumns, i % kColumns);
           }});
}

}  // namespace

TEST_CASE("hopper: TMA load 2d, inside and over the edges") {
  under_schedules([] {
    for (const At at : {At{0, 0, 0, 0}, At{8, 3, 0, 0}, At{16, 30, 0, 0}, At{-8, -3, 0, 0}, At{128, 50, 0, 0}})
      check_load<2>(kMatrix, at);
  });
}

TEST_CASE("hopper: TMA load 3d, inside and over the edges") {
  under_schedules([] {
    for (const At at : {At{0, 0, 0, 0}, At{8, 3, 1, 0}, At{64, 12, 1, 0}, At{-16, -3, 0, 0}, At{0, 0, 2, 0}})
      check_load<3>(kStack, at);
  });
}

TEST_CASE("hopper: TMA load 4d, inside and over the edges") {
  under_schedules([] {
    for (const At at : {At{0, 0, 0, 0}, At{0, 3, 1, 1}, At{64, 0, 1, 0}, At{64, 9, 1, 1}, At{0, 16, 0, 1}})
      check_load<4>(kHeads, at);
  });
}

TEST_CASE("hopper: TMA store 2d, inside and over the edges") {
  under_schedules([] {
    for (const At at : {At{0, 0, 0, 0}, At{8, 24, 0, 0}, At{16, 30, 0, 0}, At{128, 50, 0, 0}})
      check_store<2>(kMatrix, at);
  });
}

TEST_CASE("hopper: TMA store 3d, inside and over the edges") {
  under_schedules([] {
    for (const At at : {At{0, 0, 0, 0}, At{8, 3, 1, 0}, At{64, 12, 1, 0}, At{0, 0, 2, 0}}) check_store<3>(kStack, at);
  });
}

TEST_CASE("hopper: TMA store 4d, inside and over the edges") {
  under_schedules([] {
    for (const At at : {At{0, 0, 0, 0}, At{0, 3, 1, 1}, At{64, 0, 1, 0}, At{64, 9, 1, 1}}) check_store<4>(kHeads, at);
  });
}

}  // namespace hopper_tma_test
