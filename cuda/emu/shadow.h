// Shadow memory: for each byte of shared or watched global memory, its last write and the reads since then.
// Read next: cuda/emu/race.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "cuda/emu/vector_clock.h"

namespace trireme::cuda::emu {

enum class Kind : std::uint8_t {
  none,
  read,
  write,
  ldmatrix,       ///< a lane's read of the values it receives
  stmatrix,       ///< a lane's write of the values it gives
  mbarrier_init,  ///< a write of the eight bytes
  mbarrier_use,   ///< arrivals and waits are atomic: they count as reads
  copy_source,    ///< cp.async
  copy_target,
  tma_source,  ///< of a load: global; of a store: shared
  tma_target,
  wgmma,
};
bool writes(Kind kind);
const char* phrase(Kind kind);  ///< for messages: "writes by cp.async"

/// One access: who, at which step, by which instruction.
struct Access {
  std::uint32_t pc = 0;  ///< from the start of the program
  Step step = 0;
  std::uint32_t block = 0;  ///< linear index: steps of different blocks are unordered
  std::uint16_t actor = 0;
  std::uint16_t thread : 10 = 0;  ///< who issued it
  std::uint16_t kind : 6 = 0;
};

struct Cell {
  Access write, read;
  std::vector<Access>* more_reads;  ///< concurrent reads, from the second on; null: none
};

/// Cells for `bytes` bytes, initially zero; pages that are never touched use no memory.
class Shadow {
 public:
  explicit Shadow(std::size_t bytes);
  ~Shadow();
  Shadow(const Shadow&) = delete;
  Shadow& operator=(const Shadow&) = delete;
  Cell& cell(std::size_t byte) { return cells_[byte]; }
  std::vector<Access>* list() { return &lists_.emplace_back(); }  ///< a new list for Cell::more_reads

 private:
  std::size_t bytes_;
  Cell* cells_ = nullptr;
  std::deque<std::vector<Access>> lists_;
};

}  // namespace trireme::cuda::emu
