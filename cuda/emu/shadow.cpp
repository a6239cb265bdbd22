// Shadow memory. See cuda/emu/shadow.h and cuda/emu/race.h.
#include "cuda/emu/shadow.h"

#include <sys/mman.h>

#include <utility>

#include "core/error.h"
#include "cuda/emu/race.h"

namespace trireme::cuda::emu {

Shadow::Shadow(std::size_t bytes) {
  const std::size_t words = (bytes + kWord - 1) / kWord;
  mapped_ = (words + words * kWord) * sizeof(Cell);
  void* const memory =
      mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) fail(ExitCode::internal, "emu", "no {} bytes of address space for a shadow", mapped_);
  words_ = static_cast<Cell*>(memory);
  bytes_ = words_ + words;
}

Shadow::~Shadow() { munmap(words_, mapped_); }

bool Shadow::is_whole(std::size_t word) {
  if (!is_divided(word)) return true;
  const Cell* const bytes = bytes_ + word * kWord;
  if (!std::all_of(bytes + 1, bytes + kWord, [&](const Cell& cell) { return cell == bytes[0]; })) return false;
  words_[word] = bytes[0];
  if (bytes[0].more_reads != nullptr) bytes[0].more_reads->cells -= kWord - 1;
  return true;
}

void Shadow::divide(std::size_t word) {
  if (is_divided(word)) return;
  Cell& whole = words_[word];
  std::fill_n(bytes_ + word * kWord, kWord, whole);
  if (whole.more_reads != nullptr) whole.more_reads->cells += kWord - 1;
  whole = {{}, {}, &divided_};
}

void Shadow::own_reads(Cell& cell, std::size_t cells) {
  Reads* const shared = cell.more_reads;
  if (shared != nullptr && shared->cells == cells) return;
  if (unused_.empty()) unused_.push_back(&reads_.emplace_back());
  cell.more_reads = unused_.back();
  unused_.pop_back();
  cell.more_reads->cells = cells;
  if (shared == nullptr) return;
  cell.more_reads->list = shared->list;
  shared->cells -= cells;
}

void Shadow::drop_reads(Cell& cell, std::size_t cells) {
  Reads* const reads = std::exchange(cell.more_reads, nullptr);
  if (reads == nullptr || (reads->cells -= cells) > 0) return;
  reads->list.clear();
  unused_.push_back(reads);
}

RaceLaunch::RaceLaunch(const Dim3& blocks, const Dim3& threads)
    : grid(blocks), block(threads), shadows_(ranges_.size()) {}

RaceLaunch::~RaceLaunch() = default;

RaceLaunch::Found RaceLaunch::find(const std::byte* address) {
  const std::size_t i = ranges_.find(address);
  if (i == WatchedRanges::none) return {nullptr, nullptr};
  if (shadows_[i] == nullptr) shadows_[i] = std::make_unique<Shadow>(ranges_[i].bytes.bytes);
  return {&ranges_[i], shadows_[i].get()};
}

}  // namespace trireme::cuda::emu
