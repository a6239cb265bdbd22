// mpi_world(), mpi_abort() and mpi_leave().
// Read next: parallel/comm/mpi_group.cpp.
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "parallel/comm/mpi_group.h"

namespace trireme {

std::shared_ptr<ProcessGroup> mpi_world(ProcessGroup::Deadline deadline, SumOrder fastest) {
  return mpi_world(WatchOptions{.timeout = deadline}, fastest);
}

std::shared_ptr<ProcessGroup> mpi_world(const WatchOptions& options, SumOrder fastest) {
  return mpi_world_in_pieces(options, fastest, comm::mpi::most_per_call);
}

std::shared_ptr<ProcessGroup> mpi_world_in_pieces(const WatchOptions& options, SumOrder fastest,
                                                  std::int64_t most_per_call) {
  // Never destroyed, like MPI's Runtime: the rank's communication thread may outlive every static object.
  static const auto* const world = [&] {
    comm::mpi::Runtime& runtime = comm::mpi::Runtime::get();
    runtime.watch(options);
    std::vector<int> members(static_cast<std::size_t>(runtime.size()));
    std::iota(members.begin(), members.end(), 0);
    return new std::shared_ptr<ProcessGroup>(
        std::make_shared<comm::mpi::MpiGroup>(runtime.world(), "world", runtime.rank(), members, 1,
                                              comm::mpi::HowToCall{.fastest = fastest, .most = most_per_call}));
  }();
  return *world;
}

std::shared_ptr<const watch::Board> watch::mpi_board() {
  return comm::mpi::Runtime::up() ? comm::mpi::Runtime::get().pages() : nullptr;
}

void mpi_abort(int exit_code) {
  std::fflush(nullptr);
  if (comm::mpi::Runtime::up()) comm::mpi::Runtime::get().abort(exit_code);
  std::_Exit(exit_code);
}

void mpi_leave(int exit_code) {
  std::fflush(nullptr);
  if (comm::mpi::Runtime::up()) comm::mpi::Runtime::get().leave(exit_code);
  std::_Exit(exit_code);
}

}  // namespace trireme
