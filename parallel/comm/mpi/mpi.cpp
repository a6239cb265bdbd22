// Registers MPI as the transport between a launcher's processes: parallel/comm/mpi/transport.h.
// Read next: parallel/comm/mpi/group.cpp.
#include <fmt/core.h>

#include <numeric>

#include "parallel/comm/mpi/group.h"
#include "parallel/comm/mpi/progress.h"
#include "parallel/comm/mpi/transport.h"

namespace trireme::comm::mpi {
namespace {

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
    return make_progress_board(instance);
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
