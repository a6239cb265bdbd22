// The progress board of a launcher's processes, over the board that MPI groups use.
// Read next: parallel/comm/progress_board.h.
#pragma once

#include "parallel/comm/progress_board.h"

namespace trireme::comm::mpi {

std::unique_ptr<ProgressBoard> make_progress_board(std::uint64_t instance);

}  // namespace trireme::comm::mpi
