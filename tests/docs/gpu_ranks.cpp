// The code around the snippet in docs/cuda.md with a process group over NCCL: see snippets_test.py.
#include "cuda/runtime/open.h"
#include "parallel/comm/nccl/launch.h"
#include "parallel/comm/watch/watchdog.h"
#include "train/launch/ranks.h"

using namespace trireme;

void make_world(Rank& rank, int visible, ProcessGroup::Deadline deadline,
                const std::function<void(const std::exception_ptr&)>& on_failure) {
  // SNIPPET
}
