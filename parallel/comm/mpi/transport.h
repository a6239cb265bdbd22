// What the library trireme_mpi gives a program: ranks that are processes of a launcher. It registers itself before
// main() begins. A program that does not link it has no MPI: its ranks are threads, and mpi_world() throws.
// Read next: parallel/comm/mpi/mpi.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "parallel/comm/process_group.h"
#include "parallel/comm/progress_board.h"
#include "parallel/comm/watch/watchdog.h"

namespace trireme::comm {

/// One function for each of those that mpi/transport.cpp defines for all programs.
class MpiTransport {
 public:
  MpiTransport() = default;
  virtual ~MpiTransport() = default;
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  virtual std::string version() const = 0;  ///< "3.1": of the standard
  /// The group of all processes.
  virtual std::shared_ptr<ProcessGroup> world(const WatchOptions& options, SumOrder fastest,
                                              std::int64_t most_per_call) const = 0;
  virtual std::shared_ptr<const watch::RankPages> pages() const = 0;  ///< null before world()
  /// Where ranks of one host publish what they do.
  virtual std::unique_ptr<ProgressBoard> progress_board(std::uint64_t instance) const = 0;
  virtual void abort(int exit_code) const = 0;  ///< returns if world() was not called
  virtual void leave(int exit_code) const = 0;  ///< likewise
};

/// Null in a program that does not link trireme_mpi.
const MpiTransport* mpi_transport();
/// Called once, by trireme_mpi. `transport` lives until the process ends. Returns true.
bool set_mpi_transport(const MpiTransport* transport);

}  // namespace trireme::comm
