// Shadow memory: for each byte of shared or watched global memory, its last write and the reads since then. Most
// accesses touch several bytes that have the same history; these are compared and changed together.
// Read next: cuda/emu/race.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <type_traits>
#include <vector>

#include "cuda/emu/vector_clock.h"

namespace trireme::cuda::emu {

enum class AccessKind : std::uint8_t {
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
bool writes(AccessKind kind);
const char* phrase(AccessKind kind);  ///< for messages: "writes by cp.async"

/// One access: who, at which step, by which instruction.
struct Access {
  std::uint32_t pc = 0;  ///< from the start of the program
  Step step = 0;
  std::uint32_t block = 0;  ///< linear index: steps of different blocks are unordered
  std::uint16_t actor = 0;
  std::uint16_t thread : 10 = 0;  ///< who issued it
  std::uint16_t kind : 6 = 0;
};

/// Concurrent reads, from the second on, of several cells.
struct Reads {
  std::vector<Access> list;
  std::size_t cells = 0;  ///< that share it
};

/// The last write of some bytes, and the reads since then.
struct Cell {
  Access write, read;
  Reads* more_reads;  ///< null: none
  bool operator==(const Cell& other) const { return std::memcmp(this, &other, sizeof(Cell)) == 0; }
};
static_assert(std::has_unique_object_representations_v<Cell>);

/// Cells for `bytes` bytes, initially zero; pages that are never touched use no memory. While the four bytes of a word
/// have the same history, they share one cell. When they differ, the word is divided: each byte gets a cell of its own.
class Shadow {
 public:
  explicit Shadow(std::size_t bytes);
  ~Shadow();
  Shadow(const Shadow&) = delete;
  Shadow& operator=(const Shadow&) = delete;

  /// Calls touch(cell, count, byte) for the cells of [first, first + bytes). `count` neighbours, the first for `byte`,
  /// have the same cell; all get what touch makes of it.
  template <class Touch>
  void for_each_cell(std::size_t first, std::size_t bytes, Touch&& touch) {
    const std::size_t end = first + bytes;
    for (std::size_t i = first; i < end;) {
      const std::size_t word = i / kWord;
      if (i % kWord == 0 && i + kWord <= end && is_whole(word)) {
        i += kWord * touch_equal(words_ + word, (end - i) / kWord, i, touch);
      } else {
        divide(word);
        i += touch_equal(bytes_ + i, std::min(end, (word + 1) * kWord) - i, i, touch);
      }
    }
  }

  // ---- Cell::more_reads of `cells` cells that share it --------------------------------------------------------------
  void own_reads(Cell& cell, std::size_t cells);  ///< makes it a list that no other cell shares
  void drop_reads(Cell& cell, std::size_t cells);

 private:
  static constexpr std::size_t kWord = 4;

  template <class Touch>
  static std::size_t touch_equal(Cell* cells, std::size_t most, std::size_t byte, Touch&& touch) {
    std::size_t count = 1;
    while (count < most && cells[count] == cells[0]) ++count;
    touch(cells[0], count, byte);
    std::fill(cells + 1, cells + count, cells[0]);
    return count;
  }
  bool is_divided(std::size_t word) const { return words_[word].more_reads == &divided_; }
  bool is_whole(std::size_t word);  ///< or becomes so: its bytes have equal cells
  void divide(std::size_t word);

  std::size_t mapped_;
  Cell *words_ = nullptr, *bytes_ = nullptr;  ///< bytes_: of divided words
  Reads divided_;                             ///< marks a divided word: its more_reads points here
  std::deque<Reads> reads_;
  std::vector<Reads*> unused_;
};

}  // namespace trireme::cuda::emu
