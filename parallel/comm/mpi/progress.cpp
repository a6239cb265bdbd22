// Implements progress_board.h with the board that MPI groups use.
#include "parallel/comm/mpi/progress.h"

#include <map>

#include "parallel/comm/mpi/runtime.h"

namespace trireme::comm::mpi {
namespace {

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

}  // namespace

std::unique_ptr<ProgressBoard> make_progress_board(std::uint64_t instance) {
  return std::make_unique<MpiProgress>(instance);
}

}  // namespace trireme::comm::mpi
