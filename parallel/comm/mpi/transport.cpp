// mpi_world(), mpi_abort() and the others that a program may call with or without MPI.
#include "parallel/comm/mpi/transport.h"

#include <cstdio>
#include <cstdlib>

#include "core/error.h"
#include "parallel/comm/mpi/pieces.h"

namespace trireme {
namespace {

constinit const comm::MpiTransport* registered = nullptr;  // set before main() begins, never changed after that

const comm::MpiTransport& required_transport() {
  if (registered == nullptr)
    fail(ExitCode::usage, "mpi",
         "a launcher started this program, which was built without MPI; expected a program with it; link trireme_mpi "
         "(Trireme::mpi), which a build with -DTRIREME_MPI=ON has, or start the program by itself: its ranks are then "
         "threads");
  return *registered;
}

}  // namespace

const comm::MpiTransport* comm::mpi_transport() { return registered; }

bool comm::set_mpi_transport(const MpiTransport* transport) {
  registered = transport;
  return true;
}

std::shared_ptr<ProcessGroup> mpi_world(ProcessGroup::Deadline deadline, SumOrder fastest) {
  return mpi_world(WatchOptions{.timeout = deadline}, fastest);
}

std::shared_ptr<ProcessGroup> mpi_world(const WatchOptions& options, SumOrder fastest) {
  return mpi_world_in_pieces(options, fastest, comm::mpi::most_per_call);
}

std::shared_ptr<ProcessGroup> mpi_world_in_pieces(const WatchOptions& options, SumOrder fastest,
                                                  std::int64_t most_per_call) {
  return required_transport().world(options, fastest, most_per_call);
}

std::shared_ptr<const watch::RankPages> watch::mpi_rank_pages() {
  return registered != nullptr ? registered->pages() : nullptr;
}

std::unique_ptr<comm::ProgressBoard> comm::mpi_progress_board(std::uint64_t instance) {
  return required_transport().progress_board(instance);
}

void mpi_abort(int exit_code) {
  std::fflush(nullptr);
  if (registered != nullptr) registered->abort(exit_code);
  std::_Exit(exit_code);
}

void mpi_leave(int exit_code) {
  std::fflush(nullptr);
  if (registered != nullptr) registered->leave(exit_code);
  std::_Exit(exit_code);
}

}  // namespace trireme
