// Asynchronous copies and the barriers that count them, in the emulator.
//   cp.async: 16 bytes per thread, global to shared, waited for by groups.
//   mbarrier: an 8-byte word in shared memory; a phase ends when all arrivals and all announced bytes are in.
//   TMA: one thread moves a whole tile; a load reports its bytes to an mbarrier. A multicast load fills the same place
//     in several blocks of a cluster.
// Read next: cuda/emu/matrix.h.
#pragma once

#include <array>
#include <cstdint>

#include "cuda/emu/block.h"

namespace trireme::cuda::emu {

/// The state in an mbarrier's word: phase bit 0, expected arrivals 1-15, pending 16-30, bytes 31-55, a mark 56-63.
struct Mbarrier {
  std::uint32_t phase;
  int expected, pending;
  std::int64_t bytes;

  static Mbarrier load(const std::uint64_t* word, Site site);
  void store(std::uint64_t* word) const;
  /// Ends the phase if nothing is missing, and stores. `owner`: the block in whose memory the word is.
  void settle(std::uint64_t* word, Block& owner);
};

void mbarrier_init(std::uint64_t* word, int count, Site site);
/// One arrival that also announces `expected_bytes` to come.
void mbarrier_arrive(std::uint64_t* word, std::int64_t expected_bytes, Site site);
/// One arrival at the same word in block `rank` of the cluster.
void mbarrier_arrive_at(std::uint64_t* word, int rank, Site site);
void mbarrier_complete_bytes(Block& owner, std::uint64_t* word, std::int64_t bytes, Site site);

/// Copies the first `valid` of `bytes` bytes; the rest become zeros.
void cp_async(void* destination, const void* source, int bytes, int valid, Site site);

/// The description of a tensor for TMA, innermost dim first. The emulated form of CUtensorMap.
struct TensorMap {
  std::byte* base = nullptr;
  int rank = 0;
  int element_bytes = 0;
  std::array<std::int64_t, 4> size{};    ///< elements
  std::array<std::int64_t, 4> stride{};  ///< bytes; stride[0] = element_bytes
  std::array<int, 4> box{};              ///< elements of a tile
  Swizzle swizzle = Swizzle::none;
};

/// Throws an Error if cuTensorMapEncodeTiled would refuse the map, with the rule that it breaks. `name`: of the tensor.
void check_tensor_map(const char* where, const char* name, const TensorMap& map);

/// Copies the tile at `start` (elements; zeros outside the tensor) to shared memory; reports its bytes to `barrier`.
/// `dims`: of the instruction.
void tma_load(void* destination, const TensorMap& map, int dims, std::array<int, 4> start, std::uint64_t* barrier,
              Site site);
/// The same to these places in each block of the cluster whose bit in `blocks` is set.
void tma_load_multicast(void* destination, const TensorMap& map, int dims, std::array<int, 4> start,
                        std::uint64_t* barrier, std::uint32_t blocks, Site site);
/// Copies the part of a tile that is inside the tensor to global memory.
void tma_store(const TensorMap& map, const void* source, int dims, std::array<int, 4> start, Site site);

}  // namespace trireme::cuda::emu
