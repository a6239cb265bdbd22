// See cuda/emu/traffic.h.
#include "cuda/emu/traffic.h"

#include <algorithm>

#include "cuda/emu/race.h"

namespace trireme::cuda::emu {

namespace {

constexpr std::size_t kBanks = 32, kWord = 4, kSector = 32;
constexpr std::size_t kShared = WatchedRanges::none - 1;  ///< in the place of a range's number

template <class T>
void keep_different(std::vector<T>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

template <class Accept>
std::uint64_t total(const Traffic& traffic, std::uint64_t (*value)(const InstructionTraffic&), Accept&& accept) {
  std::uint64_t sum = 0;
  for (const InstructionTraffic& instruction : traffic.instructions)
    if (accept(instruction)) sum += value(instruction);
  return sum;
}
std::uint64_t transactions(const InstructionTraffic& instruction) { return instruction.transactions; }
std::uint64_t excess(const InstructionTraffic& instruction) { return instruction.excess(); }

}  // namespace

std::uint64_t Traffic::wavefronts() const {
  return total(*this, transactions, [](const InstructionTraffic& i) { return i.shared; });
}
std::uint64_t Traffic::bank_conflicts() const {
  return total(*this, excess, [](const InstructionTraffic& i) { return i.shared; });
}
std::uint64_t Traffic::sectors(const std::string& array, bool writes) const {
  return total(*this, transactions,
               [&](const InstructionTraffic& i) { return !i.shared && i.array == array && i.writes == writes; });
}
std::uint64_t Traffic::excess_sectors() const {
  return total(*this, excess, [](const InstructionTraffic& i) { return !i.shared; });
}

BlockTraffic::BlockTraffic(const Block& block, Traffic& sum)
    : block_(block),
      sum_(sum),
      stacks_(block.stack_of(block.fiber(0)) - Stacks::kGuard),
      last_copy_(static_cast<std::size_t>(block.threads())),
      warps_(static_cast<std::size_t>(block.threads() + 31) / 32) {}

BlockTraffic::~BlockTraffic() = default;

void BlockTraffic::access(const void* at, std::size_t bytes, bool writes, const void* pc) {
  const auto* const address = static_cast<const std::byte*>(at);
  const auto stack_bytes = static_cast<std::size_t>(block_.threads()) * Stacks::kBytes;
  if (busy_ || bytes == 0 || (address >= stacks_ && address < stacks_ + stack_bytes)) return;
  const Busy busy(busy_);
  const std::byte* const shared = block_.shared_at(0);
  if (!writes && address >= shared && address < shared + Block::kSharedSpan) {
    ++shared_reads_;
    if (copies_in_flight()) ++reads_beside_copies_;
  }
  const Instruction instruction = (std::uint64_t{program_offset(pc)} << 1) | (writes ? 1U : 0U);
  const auto warp = static_cast<std::size_t>(block_.fiber().index / 32);
  const auto lane = static_cast<std::size_t>(block_.fiber().index % 32);
  Executions& executions = warps_[warp][instruction];
  const std::uint32_t k = executions.count[lane]++ - executions.closed;
  while (executions.open.size() <= k) executions.open.emplace_back();
  Open& open = executions.open[k];
  open.pieces[lane] = {address, bytes};
  open.lanes |= 1U << lane;
  while (!executions.open.empty() && executions.open.front().lanes == ~0U) {
    close(instruction, executions.open.front());
    executions.open.pop_front();
    ++executions.closed;
  }
}

void BlockTraffic::copy_issued() {
  last_copy_[static_cast<std::size_t>(block_.fiber().index)] = block_.fiber().copies.committed + 1;
}

/// Issued by any thread, and not waited for by that thread.
bool BlockTraffic::copies_in_flight() const {
  for (int i = 0; i < block_.threads(); ++i)
    if (last_copy_[static_cast<std::size_t>(i)] > block_.fiber(i).copies.waited) return true;
  return false;
}

void BlockTraffic::matrix(const std::array<const std::byte*, 8>& rows, bool writes, const void* pc) {
  const Busy busy(busy_);
  std::vector<Piece> pieces;
  for (const std::byte* const row : rows) pieces.push_back({row, 16});
  count((std::uint64_t{program_offset(pc)} << 1) | (writes ? 1U : 0U), pieces, false);
}

void BlockTraffic::end_bulk(bool writes, const void* pc) {
  const Busy busy(busy_);
  count((std::uint64_t{program_offset(pc)} << 1) | (writes ? 1U : 0U), bulk_, false);
  bulk_.clear();
}

void BlockTraffic::meet(int first, int threads) {
  const Busy busy(busy_);
  for (int warp = first / 32; warp <= (first + threads - 1) / 32; ++warp) {
    auto& instructions = warps_[static_cast<std::size_t>(warp)];
    for (const auto& [instruction, executions] : instructions)
      for (const Open& open : executions.open) close(instruction, open);
    instructions.clear();
  }
}

void BlockTraffic::barrier() {
  ++barriers_;
  meet(0, block_.threads());
}

void BlockTraffic::end(std::size_t shared_bytes) {
  meet(0, block_.threads());
  sum_.barriers = std::max(sum_.barriers, barriers_);
  sum_.shared_bytes = std::max(sum_.shared_bytes, shared_bytes);
  sum_.shared_reads += shared_reads_;
  sum_.reads_beside_copies += reads_beside_copies_;
  sum_.most_tma_loads = std::max(sum_.most_tma_loads, most_tma_loads_);
  for (auto& [key, entry] : entries_) {
    const auto same = [&entry = entry](const InstructionTraffic& other) {
      return other.pc == entry.pc && other.writes == entry.writes && other.shared == entry.shared &&
             other.array == entry.array;
    };
    const auto found = std::find_if(sum_.instructions.begin(), sum_.instructions.end(), same);
    if (found == sum_.instructions.end()) {
      sum_.instructions.push_back(std::move(entry));
      continue;
    }
    found->accesses += entry.accesses;
    found->transactions += entry.transactions;
    found->least += entry.least;
  }
}

void BlockTraffic::close(Instruction instruction, const Open& access) {
  std::vector<Piece> pieces(access.pieces.begin(), access.pieces.end());  // null: a lane that did not take part
  count(instruction, pieces, true);
}

/// `in_phases`: the pieces are those of 32 lanes, which wide accesses take part by part.
void BlockTraffic::count(Instruction instruction, const std::vector<Piece>& pieces, bool in_phases) {
  const std::byte* const shared = block_.shared_at(0);
  std::map<std::size_t, std::vector<Piece>> by_range;  // lanes of one instruction may go to several arrays
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].at == nullptr) continue;
    const bool is_shared = pieces[i].at >= shared && pieces[i].at < shared + Block::kSharedSpan;
    const std::size_t range = is_shared ? kShared : watched_.find(pieces[i].at);
    if (range == WatchedRanges::none) continue;
    std::vector<Piece>& own = by_range[range];
    own.resize(pieces.size());
    own[i] = pieces[i];
  }
  for (const auto& [range, own] : by_range) {
    InstructionTraffic& to = entry(instruction, range);
    ++to.accesses;
    if (range == kShared)
      count_shared(to, own, in_phases);
    else
      count_global(to, own);
  }
}

void BlockTraffic::count_shared(InstructionTraffic& to, const std::vector<Piece>& pieces, bool in_phases) const {
  std::size_t widest = kWord;
  for (const Piece& piece : pieces) widest = std::max(widest, piece.bytes);
  const std::size_t lanes = in_phases ? std::max<std::size_t>(1, pieces.size() * kWord / widest) : pieces.size();
  for (std::size_t first = 0; first < pieces.size(); first += lanes) {
    std::vector<std::size_t> words;
    for (std::size_t i = first; i < std::min(first + lanes, pieces.size()); ++i) {
      const auto begin = static_cast<std::size_t>(pieces[i].at - block_.shared_at(0));
      for (std::size_t byte = begin; pieces[i].at != nullptr && byte < begin + pieces[i].bytes; ++byte)
        if (words.empty() || words.back() != byte / kWord) words.push_back(byte / kWord);
    }
    if (words.empty()) continue;
    keep_different(words);
    std::array<std::uint64_t, kBanks> in_bank{};
    for (const std::size_t word : words) ++in_bank[word % kBanks];
    to.transactions += *std::max_element(in_bank.begin(), in_bank.end());
    ++to.least;
  }
}

void BlockTraffic::count_global(InstructionTraffic& to, const std::vector<Piece>& pieces) {
  std::vector<std::uintptr_t> sectors;
  std::vector<std::pair<std::uintptr_t, std::uintptr_t>> ranges;
  for (const Piece& piece : pieces) {
    if (piece.at == nullptr) continue;
    const auto begin = reinterpret_cast<std::uintptr_t>(piece.at), end = begin + piece.bytes;
    ranges.emplace_back(begin, end);
    for (std::uintptr_t sector = begin / kSector; sector <= (end - 1) / kSector; ++sector) sectors.push_back(sector);
  }
  keep_different(sectors);
  std::sort(ranges.begin(), ranges.end());
  std::uintptr_t bytes = 0, covered = 0;  // bytes that several lanes want count once
  for (const auto& [begin, end] : ranges) {
    if (end > covered) bytes += end - std::max(begin, covered);
    covered = std::max(covered, end);
  }
  to.transactions += sectors.size();
  to.least += (bytes + kSector - 1) / kSector;
}

InstructionTraffic& BlockTraffic::entry(Instruction instruction, std::size_t range) {
  InstructionTraffic& entry = entries_[{instruction, range}];
  if (entry.accesses > 0) return entry;
  entry.pc = static_cast<std::uint32_t>(instruction >> 1);
  entry.writes = instruction % 2 == 1;
  entry.shared = range == kShared;
  if (entry.shared) return entry;
  const char* const name = watched_[range].bytes.name;
  entry.array = name == nullptr ? "global memory" : name;
  return entry;
}

}  // namespace trireme::cuda::emu
