// Where the ranks of one group show which collective they began last. A rank that waits in vain can then name those
// that never came or called something else. For groups whose transport cannot tell this. Read next:
// parallel/comm/mpi/board.h, the board in memory that the processes of a node share.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "parallel/comm/collective.h"

namespace trireme::comm {

class ProgressBoard {
 public:
  struct Entry {
    std::uint64_t sequence = 0;  ///< in the group; 0: none yet
    Signature signature;
  };

  virtual ~ProgressBoard() = default;
  virtual void begin(const Entry& entry) = 0;  ///< of the calling rank
  /// Nothing when that rank is not visible from here, or is writing at this moment.
  virtual std::optional<Entry> read(int world_rank) = 0;
  virtual bool visible(int world_rank) const = 0;
};

/// The board of the launcher's processes, after mpi_world(). `instance`: a number that is the same on all members and
/// differs from every other group's.
std::unique_ptr<ProgressBoard> mpi_progress_board(std::uint64_t instance);

}  // namespace trireme::comm
