#include "parallel/comm/mpi/board.h"

#include <atomic>
#include <filesystem>
#include <memory>
#include <new>

#include "core/error.h"
#include "parallel/comm/mpi/runtime.h"

namespace trireme::comm::mpi {
namespace {

constexpr std::uint64_t writing = ~std::uint64_t{0};  // in place of a sequence number, whose 0 means none begun yet

std::atomic_ref<std::uint64_t> shared(std::uint64_t& word) { return std::atomic_ref<std::uint64_t>(word); }

// kind 4 bits, op 1, dtype 3, root 16, order 1, count 39: one word, so that a write is atomic.
std::uint64_t pack(const Signature& s) {
  return static_cast<std::uint64_t>(s.kind) | static_cast<std::uint64_t>(s.op) << 4 |
         static_cast<std::uint64_t>(s.dtype) << 5 | static_cast<std::uint64_t>(s.root) << 8 |
         static_cast<std::uint64_t>(s.order) << 24 | static_cast<std::uint64_t>(s.count) << 25;
}

Signature unpack(std::uint64_t word) {
  return {static_cast<CollectiveKind>(word & 15U), static_cast<ReduceOp>(word >> 4 & 1U),
          static_cast<DType>(word >> 5 & 7U),      static_cast<int>(word >> 8 & 0xffffU),
          static_cast<std::int64_t>(word >> 25),   static_cast<SumOrder>(word >> 24 & 1U)};
}

// MPI promises no alignment. All processes map the memory at whole pages, so they all round to the same place.
template <class T>
T* aligned(void* memory) {
  std::size_t space = sizeof(T) + alignof(T);
  return static_cast<T*>(std::align(alignof(T), sizeof(T), memory, space));
}

/// Throws for memory that MPI could not share between `ranks` ranks.
[[noreturn]] void fail_shared_memory(std::size_t bytes, int ranks, int code) {
  constexpr const char* place = "/dev/shm";  // Open MPI and MPICH share memory by files there
  std::error_code unknown;
  const auto space = std::filesystem::space(place, unknown);
  const std::string available = unknown ? "an unknown number" : fmt::format("{}", space.available);
  fail(ExitCode::retryable, "memory",
       "the {} ranks of this machine cannot share memory: {}; expected more than {} bytes free in {}, which has {}; "
       "remove what "
       "ended jobs left there (vader_segment.*, osc_sm.*), or enlarge it (mount -o remount,size=64m {}; docker run "
       "--shm-size=64m)",
       ranks, error_text(code), bytes, place, available, place);
}

}  // namespace

NodeBoard::NodeBoard(MPI_Comm world) {
  int world_size = 0, world_rank = 0;
  check_code(MPI_Comm_size(world, &world_size), "mpi");
  check_code(MPI_Comm_rank(world, &world_rank), "mpi");
  MPI_Comm node = MPI_COMM_NULL;
  check_code(MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, world_rank, MPI_INFO_NULL, &node), "mpi");
  check_code(MPI_Comm_size(node, &ranks_here_), "mpi");
  std::vector<int> world_ranks(static_cast<std::size_t>(ranks_here_));
  check_code(MPI_Allgather(&world_rank, 1, MPI_INT, world_ranks.data(), 1, MPI_INT, node), "mpi");

  MPI_Win window = MPI_WIN_NULL;  // freed by MPI_Finalize
  void* own = nullptr;
  constexpr std::size_t size = sizeof(Page) + alignof(Page);
  const int code =
      MPI_Win_allocate_shared(static_cast<MPI_Aint>(size), 1, MPI_INFO_NULL, node, static_cast<void*>(&own), &window);
  if (code != MPI_SUCCESS) fail_shared_memory(size * world_ranks.size(), ranks_here_, code);
  ranks_.resize(static_cast<std::size_t>(world_size), nullptr);
  for (int rank = 0; rank < ranks_here_; ++rank) {
    MPI_Aint bytes = 0;
    int unit = 0;
    void* base = nullptr;
    check_code(MPI_Win_shared_query(window, rank, &bytes, &unit, static_cast<void*>(&base)), "mpi");
    ranks_[static_cast<std::size_t>(world_ranks[static_cast<std::size_t>(rank)])] = aligned<Page>(base);
  }
  mine_ = aligned<Page>(own);
  new (&mine_->watch) watch::RankPage();
  for (int line = 0; line < lines; ++line) close(line);
  check_code(MPI_Barrier(node), "mpi");
}

int NodeBoard::open(std::uint64_t group) {
  for (int line = 0; line < lines; ++line) {
    Line& free = mine_->lines[line];
    if (shared(free.group) != 0) continue;
    shared(free.sequence) = 0;
    shared(free.ended) = 0;
    shared(free.group) = group;
    return line;
  }
  return -1;
}

void NodeBoard::close(int line) {
  if (line >= 0) shared(mine_->lines[line].group) = 0;
}

void NodeBoard::write(int line, const Entry& entry) {
  if (line < 0) return;
  Line& mine = mine_->lines[line];
  shared(mine.sequence) = writing;
  shared(mine.signature) = pack(entry.signature);
  shared(mine.sequence) = entry.sequence;
}

void NodeBoard::end(int line) {
  if (line >= 0) shared(mine_->lines[line].ended) = shared(mine_->lines[line].sequence).load();
}

std::shared_ptr<watch::RankPages> NodeBoard::pages() const {
  std::vector<watch::RankPage*> pages;
  for (Page* page : ranks_) pages.push_back(page == nullptr ? nullptr : &page->watch);
  return std::make_shared<watch::RankPages>(std::move(pages));
}

std::optional<NodeBoard::Entry> NodeBoard::read(int world_rank, std::uint64_t group, int& line) const {
  Page* const page = ranks_[static_cast<std::size_t>(world_rank)];
  if (page == nullptr) return std::nullopt;
  for (int tries = 0; shared(page->lines[line].group) != group; ++tries) {
    if (tries == lines) return Entry{};  // that rank has not made the group yet
    line = (line + 1) % lines;
  }
  Line& found = page->lines[line];
  const std::uint64_t before = shared(found.sequence), signature = shared(found.signature), ended = shared(found.ended);
  if (before == writing || shared(found.sequence) != before) return std::nullopt;
  return Entry{before, unpack(signature), ended == before};
}

}  // namespace trireme::comm::mpi
