// The code around the snippet in docs/cuda.md with a staged process group: see snippets_test.py.
#include "parallel/comm/staged_group.h"
#include "parallel/comm/verifying_group.h"
#include "train/launch/ranks.h"

using namespace trireme;

void make_world(Rank& rank, const std::shared_ptr<ProcessGroup>& world) {
  // SNIPPET
}
