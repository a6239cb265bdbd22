// Context of the staged process group in docs/cuda.md: see snippets_test.py.
#include "parallel/comm/staged_group.h"
#include "parallel/comm/verifying_group.h"
#include "train/launch/ranks.h"

using namespace trireme;

void make_world(Rank& rank, const std::shared_ptr<ProcessGroup>& world) {
  // SNIPPET
}
