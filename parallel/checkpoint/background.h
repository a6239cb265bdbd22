// A thread that saves while training computes. It has the lowest priority: with every core busy it gets only idle time,
// for instance while ranks wait for one another. So saving becomes slower, and steps do not.
// Read next: parallel/checkpoint/saver.cpp.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <future>
#include <utility>

#include "core/cores.h"

namespace trireme::checkpoint {

/// Runs f on such a thread. Returns a std::future with its result; its destructor waits for the thread.
template <class F>
auto in_background(F f) {
  return std::async(std::launch::async, [f = std::move(f)]() mutable {
    use_all_cores();
    // Affects only this thread on Linux. If the system refuses, the thread works at normal priority.
    static_cast<void>(::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 19));
    return f();
  });
}

}  // namespace trireme::checkpoint
