// Replaces mpi.cpp in a build without MPI (-DTRIREME_MPI=OFF): mpi_world() throws, and ranks are threads.
#include <cstdio>
#include <cstdlib>

#include "core/error.h"
#include "parallel/comm/mpi_pieces.h"
#include "parallel/comm/process_group.h"
#include "parallel/comm/progress_board.h"
#include "parallel/comm/watch/watchdog.h"

namespace trireme {

std::shared_ptr<ProcessGroup> mpi_world(ProcessGroup::Deadline, SumOrder fastest) {
  return mpi_world(WatchOptions(), fastest);
}

std::shared_ptr<ProcessGroup> mpi_world(const WatchOptions& options, SumOrder fastest) {
  return mpi_world_in_pieces(options, fastest, 0);
}

std::shared_ptr<ProcessGroup> mpi_world_in_pieces(const WatchOptions&, SumOrder, std::int64_t) {
  fail(ExitCode::usage, "mpi",
       "a launcher started this program, which was built without MPI; expected a build with it; configure with "
       "-DTRIREME_MPI=ON, or start the program by itself, and its ranks are threads");
}

std::shared_ptr<const watch::Board> watch::mpi_board() { return nullptr; }

void mpi_abort(int exit_code) {
  std::fflush(nullptr);
  std::_Exit(exit_code);
}

void mpi_leave(int exit_code) { mpi_abort(exit_code); }

namespace comm {

std::unique_ptr<ProgressBoard> mpi_progress_board(std::uint64_t) {
  fail(ExitCode::internal, "mpi", "this build has no MPI, and so no progress board of the launcher's processes");
}

}  // namespace comm
}  // namespace trireme
