// A team of threads of another size, for as long as a scope lasts.
// Read next: core/parallel_for.h.
#pragma once

#include "core/parallel_for.h"

namespace trireme::testing {

/// Sets the calling thread's team size, and puts the old size back.
class TeamOf {
 public:
  explicit TeamOf(int count) : previous_(threads()) { set_threads(count); }
  ~TeamOf() { set_threads(previous_); }
  TeamOf(const TeamOf&) = delete;
  TeamOf& operator=(const TeamOf&) = delete;

 private:
  int previous_;
};

}  // namespace trireme::testing
