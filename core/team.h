// The threads of one rank. Each rank (a thread or a process) has its own team, whose size is set by set_threads() and
// which lives as long as the rank's thread.
//
// Work comes in parts. Each member starts with its own part, which stays in its cache from operation to operation. A
// member that is done takes parts that nobody has begun. So no part waits for a thread that the system has suspended,
// because other programs use its core. Members wait for one another by spinning, for about the usual gap between two
// operations, and then sleep.
// Read next: core/parallel_for.h, what kernels call; core/team.cpp.
#pragma once

#include <memory>
#include <type_traits>

namespace trireme {

/// Size of the calling rank's team: the value of set_threads(), by default the number of cores this process may use,
/// within its quota of processor time; 1 inside a part, since parts do not split further.
int threads();
/// Sets the size of the calling thread's team from here on; a count below 1 is taken as 1.
void set_threads(int count);

namespace team {

/// A reference to a callable, body(part).
class Body {
 public:
  template <class F>
  explicit Body(F& f)
      : context_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        call_([](void* context, int part) { (*static_cast<F*>(context))(part); }) {}
  void operator()(int part) const { call_(context_, part); }  ///< body(part)

 private:
  void* context_;
  void (*call_)(void*, int);
};

/// Calls body(part) once for each part in [0, parts), in any order and on any members. An exception from body ends the
/// program.
void run_parts(int parts, Body body);
/// As above, but each part runs on its own member, all at the same time. Either all parts call barrier(parts), or none.
void run_together(int parts, Body body);
/// Waits until all `parts` of the enclosing run_together are here.
void barrier(int parts);

}  // namespace team
}  // namespace trireme
