#include "core/dry_run.h"

#include "core/error.h"
#include "core/memory.h"

namespace trireme {

constinit thread_local DryRun::State DryRun::state_;

DryRun::DryRun(DryListener* listener, bool computes) : previous_(MemoryPool::current()) {
  require(!state_.on, "dry_run", "this thread is in a dry run already; expected one at a time");
  state_ = {.on = true, .skips = true, .listener = listener};
  MemoryPool::set_current(MemoryPool::dry(computes));
}

DryRun::~DryRun() {
  state_ = {};
  MemoryPool::set_current(std::move(previous_));
}

}  // namespace trireme
