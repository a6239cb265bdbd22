// The tensor memory accelerator: whole tiles between global and shared memory, swizzled on the way.
#include <fmt/core.h>

#include <cstring>

#include "cuda/emu/async.h"
#include "cuda/emu/cluster.h"
#include "cuda/emu/race.h"
#include "cuda/emu/traffic.h"

namespace trireme::cuda::emu {

namespace {

std::size_t tile_bytes(const TensorMap& map) {
  std::size_t bytes = static_cast<std::size_t>(map.element_bytes);
  for (int d = 0; d < map.rank; ++d) bytes *= static_cast<std::size_t>(map.box[static_cast<std::size_t>(d)]);
  return bytes;
}

/// Calls piece(offset in the tile, global pointer or null) for each element of the box, in tile order.
template <class Piece>
void for_each_element(const TensorMap& map, const std::array<int, 4>& start, Piece&& piece) {
  std::array<int, 4> box = {1, 1, 1, 1};
  for (std::size_t d = 0; d < static_cast<std::size_t>(map.rank); ++d) box[d] = map.box[d];
  std::uint32_t offset = 0;
  std::array<int, 4> at{};
  for (at[3] = 0; at[3] < box[3]; ++at[3])
    for (at[2] = 0; at[2] < box[2]; ++at[2])
      for (at[1] = 0; at[1] < box[1]; ++at[1])
        for (at[0] = 0; at[0] < box[0]; ++at[0]) {
          std::byte* global = map.base;
          bool inside = true;
          for (std::size_t d = 0; d < static_cast<std::size_t>(map.rank); ++d) {
            const std::int64_t i = start[d] + at[d];
            inside = inside && i >= 0 && i < map.size[d];
            global += i * map.stride[d];
          }
          piece(offset, inside ? global : nullptr);
          offset += static_cast<std::uint32_t>(map.element_bytes);
        }
}

/// The same for runs of elements that are neighbours in global memory and, being part of 16 aligned bytes of the tile,
/// also in shared memory: piece(offset in the tile, global pointer or null, bytes).
template <class Piece>
void for_each_run(const TensorMap& map, const std::array<int, 4>& start, Piece&& piece) {
  const auto size = static_cast<std::uint32_t>(map.element_bytes);
  std::uint32_t begin = 0, bytes = 0;
  std::byte* from = nullptr;
  const auto finish = [&] {
    if (bytes > 0) piece(begin, from, std::size_t{bytes});
  };
  for_each_element(map, start, [&](std::uint32_t offset, std::byte* global) {
    if (bytes > 0 && offset % 16 != 0 && global == (from == nullptr ? nullptr : from + bytes)) {
      bytes += size;
      return;
    }
    finish();
    begin = offset;
    from = global;
    bytes = size;
  });
  finish();
}

void count_traffic(const TensorMap& map, const std::array<int, 4>& start, bool writes, const void* pc) {
  BlockTraffic* const traffic = running_block->traffic();
  if (traffic == nullptr) return;
  for_each_run(map, start, [&](std::uint32_t, const std::byte* global, std::size_t run) {
    if (global != nullptr) traffic->bulk_piece(global, run);
  });
  traffic->end_bulk(writes, pc);
}

/// An H100 ends a load or store whose first byte is no multiple of 16, and a store that begins before the tensor, with
/// "an illegal instruction was encountered".
void check_start(const TensorMap& map, const std::array<int, 4>& start, bool is_store, const char* what, Site site) {
  if (const int bytes = start[0] * map.element_bytes; bytes % 16 != 0)
    running_block->fault(site, fmt::format("{}: innermost coordinate {}, which is {} bytes; expected a multiple of 16",
                                           what, start[0], bytes));
  for (int d = 0; d < map.rank && is_store; ++d)
    if (const int coordinate = start[static_cast<std::size_t>(d)]; coordinate < 0)
      running_block->fault(
          site, fmt::format("{}: coordinate {} of dim {}; expected 0 or more, unlike for loads", what, coordinate, d));
}

std::uint32_t check_tile(const TensorMap& map, int dims, const void* tile, const char* what, Site site) {
  const Block& block = *running_block;
  if (dims != map.rank)
    block.fault(
        site, fmt::format("{}: an instruction for {} dims; expected {}, as the tensor map has", what, dims, map.rank));
  const std::uint32_t address = block.check_shared(tile, tile_bytes(map), 128, what, site);
  // A tile that does not begin at the start of the swizzle's pattern is legal, but almost always a mistake.
  const std::uint32_t pattern = map.swizzle == Swizzle::b128 ? 1024 : map.swizzle == Swizzle::b64 ? 512 : 128;
  if (map.swizzle != Swizzle::none && address % pattern != 0)
    block.fault(site, fmt::format("{}: a swizzled tile at shared address {}; expected a multiple of {}", what, address,
                                  pattern));
  return address;
}

/// Starts the part of a load that fills the memory of block `to`. `destination`, `barrier`: in the running block.
void start_load(Block& to, std::byte* destination, const TensorMap& map, const std::array<int, 4>& start,
                std::uint64_t* barrier, const void* pc, Site site) {
  Block& block = *running_block;
  const auto address = static_cast<std::uint32_t>(destination - block.shared_at(0));
  const auto word = static_cast<std::uint32_t>(reinterpret_cast<std::byte*>(barrier) - block.shared_at(0));
  std::uint64_t* const its_barrier = in_block(to, block, barrier);
  std::uint64_t seen = 0;
  std::memcpy(&seen, to.async_view_at(word), 8);
  if (seen == ~std::uint64_t{0})
    block.fault(site, "TMA load: its mbarrier was initialised, but no fence made that visible to the TMA unit");
  const std::size_t bytes = tile_bytes(map), size = static_cast<std::size_t>(map.element_bytes);
  if (block.race() != nullptr) {
    block.race()->tma_load(*to.race(), its_barrier, pc);
    for_each_run(map, start, [&](std::uint32_t offset, const std::byte* global, std::size_t run) {
      std::byte* const piece = to.shared_at(swizzled(map.swizzle, address + offset));
      block.race()->tma_load_piece(*to.race(), its_barrier, piece, global, run, pc);
    });
  }
  std::memset(to.shared_at(address), 0xff, bytes);
  std::memset(to.async_view_at(address), 0xff, bytes);
  to.start(
      [=, &to, map = map] {
        for_each_element(map, start, [&](std::uint32_t offset, const std::byte* global) {
          const std::uint32_t at = swizzled(map.swizzle, address + offset);
          if (global == nullptr)
            std::memset(to.shared_at(at), 0, size);
          else
            std::memcpy(to.shared_at(at), global, size);
          std::memcpy(to.async_view_at(at), to.shared_at(at), size);
        });
        mbarrier_complete_bytes(to, its_barrier, static_cast<std::int64_t>(bytes), site);
      },
      nullptr);
  if (to.traffic() != nullptr) to.traffic()->tma_loads(to.tma_loads_in_flight());
}

void check_load(const void* destination, const TensorMap& map, int dims, const std::array<int, 4>& start,
                const std::uint64_t* barrier, Site site) {
  check_tile(map, dims, destination, "TMA load", site);
  check_start(map, start, false, "TMA load", site);
  running_block->check_shared(barrier, 8, 8, "TMA load: mbarrier", site);
}

}  // namespace

void tma_load(void* destination, const TensorMap& map, int dims, std::array<int, 4> start, std::uint64_t* barrier,
              Site site) {
  check_load(destination, map, dims, start, barrier, site);
  count_traffic(map, start, false, __builtin_return_address(0));
  start_load(*running_block, static_cast<std::byte*>(destination), map, start, barrier, __builtin_return_address(0),
             site);
  running_block->give_way();
}

void tma_load_multicast(void* destination, const TensorMap& map, int dims, std::array<int, 4> start,
                        std::uint64_t* barrier, std::uint32_t blocks, Site site) {
  check_load(destination, map, dims, start, barrier, site);
  if (blocks == 0 || blocks > 0xffffU)
    running_block->fault(site,
                         fmt::format("TMA load: the mask of blocks is {:#x}; expected 16 bits, not all 0", blocks));
  count_traffic(map, start, false, __builtin_return_address(0));
  for (int rank = 0; rank < 16; ++rank) {
    if (((blocks >> rank) & 1U) == 0) continue;
    Block& to = running_block->cluster().peer(rank, destination, tile_bytes(map), "TMA load", site);
    start_load(to, static_cast<std::byte*>(destination), map, start, barrier, __builtin_return_address(0), site);
  }
  running_block->give_way();
}

void tma_store(const TensorMap& map, const void* source, int dims, std::array<int, 4> start, Site site) {
  Block& block = *running_block;
  const std::uint32_t address = check_tile(map, dims, source, "TMA store", site);
  check_start(map, start, true, "TMA store", site);
  const auto size = static_cast<std::size_t>(map.element_bytes);
  count_traffic(map, start, true, __builtin_return_address(0));
  if (block.race() != nullptr) {
    const void* const pc = __builtin_return_address(0);
    for_each_run(map, start, [&](std::uint32_t offset, std::byte* global, std::size_t run) {
      const std::byte* const from = block.shared_at(swizzled(map.swizzle, address + offset));
      block.race()->tma_store_piece(global, from, run, pc);
    });
  }
  block.start(
      [=, &block, map = map] {
        for_each_element(map, start, [&](std::uint32_t offset, std::byte* global) {
          if (global != nullptr)
            std::memcpy(global, block.async_view_at(swizzled(map.swizzle, address + offset)), size);
        });
      },
      &block.fiber().tma_stores);
}

}  // namespace trireme::cuda::emu
