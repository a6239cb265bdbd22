// Registers MPI as the transport between a launcher's processes: parallel/comm/mpi/transport.h.
// Read next: parallel/comm/mpi/group.cpp.
#include <fmt/core.h>

#include <map>
#include <numeric>

#include "parallel/comm/mpi/group.h"
#include "parallel/comm/mpi/runtime.h"
#include "parallel/comm/mpi/transport.h"
#include "parallel/comm/progress_board.h"

namespace trireme::comm::mpi {
namespace {

/// The progress board of a launcher's processes, over the board that MPI groups use.
class MpiProgress final : public ProgressBoard {
 public:
  explicit MpiProgress(std::uint64_t instance)
      : board_(Runtime::get().board()), instance_(instance), line_(board_.open(instance)) {}
  ~MpiProgress() override { board_.close(line_); }
  MpiProgress(const MpiProgress&) = delete;
  MpiProgress& operator=(const MpiProgress&) = delete;

  void begin(const Entry& entry) override { board_.write(line_, {entry.sequence, entry.signature}); }
  std::optional<Entry> read(int world_rank) override {
    const auto shown = board_.read(world_rank, instance_, lines_[world_rank]);
    if (!shown) return std::nullopt;
    return Entry{shown->sequence, shown->signature};
  }
  bool visible(int world_rank) const override { return board_.visible(world_rank); }

 private:
  NodeBoard& board_;
  std::uint64_t instance_;
  int line_;
  std::map<int, int> lines_;  // by world rank: where to look first
};

class Transport final : public MpiTransport {
 public:
  std::string version() const override { return fmt::format("{}.{}", MPI_VERSION, MPI_SUBVERSION); }

  std::shared_ptr<ProcessGroup> world(const WatchOptions& options, SumOrder fastest,
                                      std::int64_t most_per_call) const override {
    // Never destroyed, like MPI's Runtime: the rank's communication thread may outlive every static object.
    static const auto* const world = [&] {
      Runtime& runtime = Runtime::get();
      runtime.watch(options);
      std::vector<int> members(static_cast<std::size_t>(runtime.size()));
      std::iota(members.begin(), members.end(), 0);
      return new std::shared_ptr<ProcessGroup>(
          std::make_shared<MpiGroup>(runtime.world(), "world", runtime.rank(), members, 1,
                                     MpiCallOptions{.fastest = fastest, .most = most_per_call}));
    }();
    return *world;
  }

  std::shared_ptr<const watch::RankPages> pages() const override {
    return Runtime::up() ? Runtime::get().pages() : nullptr;
  }

  std::unique_ptr<ProgressBoard> progress_board(std::uint64_t instance) const override {
    return std::make_unique<MpiProgress>(instance);
  }

  void abort(int exit_code) const override {
    if (Runtime::up()) Runtime::get().abort(exit_code);
  }

  void leave(int exit_code) const override {
    if (Runtime::up()) Runtime::get().leave(exit_code);
  }
};

}  // namespace
}  // namespace trireme::comm::mpi

// A linker takes this object from its archive for the name of this variable, which the library asks for in the link
// options of its users (parallel/comm/CMakeLists.txt).
extern "C" {
extern const bool trireme_mpi_linked;
const bool trireme_mpi_linked =
    trireme::comm::set_mpi_transport(new trireme::comm::mpi::Transport);  // never destroyed, as above
}
