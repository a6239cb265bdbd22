// The threads of one rank. Each rank (a thread or a process) has its own team, of the size set_threads() gave it, which
// lives as long as the rank's thread.
//
// Work comes in parts. A part belongs to a member, which finds its share in its cache from operation to operation; but
// whoever is done takes the parts that nobody has begun. So a member that the system does not run just now, because
// other programs want its core, holds nobody up. Members wait for one another spinning, for as long as the gap between
// two operations usually is, and then asleep.
// Read next: core/parallel_for.h, what kernels call; core/team.cpp.
#pragma once

#include <memory>
#include <type_traits>

namespace trireme {

/// Size of the calling rank's team: what set_threads() was given, at first the cores this process may use; 1 inside a
/// part, since parts do not split further.
int threads();
/// From here on, of the calling thread. At least 1.
void set_threads(int count);

namespace team {

/// A callable by reference: body(part).
class Body {
 public:
  template <class F>
  explicit Body(F& f)
      : context_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        call_([](void* context, int part) { (*static_cast<F*>(context))(part); }) {}
  void operator()(int part) const { call_(context_, part); }

 private:
  void* context_;
  void (*call_)(void*, int);
};

/// Calls body(part) once for each part in [0, parts), in any order and on any members. What it throws ends the program.
void run_parts(int parts, Body body);
/// As above, each part on a member of its own, all at the same time: they may meet at barrier(parts), all or none.
void run_together(int parts, Body body);
/// Waits until all `parts` of the enclosing run_together are here.
void barrier(int parts);

}  // namespace team
}  // namespace trireme
