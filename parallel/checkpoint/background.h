// A thread that saves while training computes: at the lowest priority, so that with every core busy it takes what
// training leaves, as while ranks wait for one another, and saving takes longer instead of the steps.
// Read next: parallel/checkpoint/saver.cpp.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <future>
#include <utility>

#include "core/cores.h"

namespace trireme::checkpoint {

/// f's result, from such a thread.
template <class F>
auto in_background(F f) {
  return std::async(std::launch::async, [f = std::move(f)]() mutable {
    use_all_cores();
    // Of this thread alone, on Linux. Where it is refused, the thread does the same work at its usual priority.
    static_cast<void>(::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 19));
    return f();
  });
}

}  // namespace trireme::checkpoint
