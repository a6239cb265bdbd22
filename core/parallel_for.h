// Threads inside one rank: the only place that knows about OpenMP.
//
// Each rank (a thread or a process) has its own team, of the size set_threads() gave it. Kernels split their
// *outputs* over the team, so results do not depend on its size.
#pragma once

#include <algorithm>
#include <cstdint>
#ifdef _OPENMP
#include <omp.h>
#endif

namespace trireme {

/// Size of the calling rank's team.
#ifdef _OPENMP
inline int threads() { return omp_get_max_threads(); }
inline void set_threads(int count) { omp_set_num_threads(count); }
#else
inline int threads() { return 1; }
inline void set_threads(int) {}
#endif

/// Calls body(begin, end) over disjoint ranges covering [0, n), one per thread, none smaller than `grain` (but the
/// last).
template <class Body>
void parallel_for(std::int64_t n, std::int64_t grain, Body&& body) {
  if (n <= 0) return;
  const std::int64_t parts =
      std::min<std::int64_t>(threads(), std::max<std::int64_t>(1, n / std::max<std::int64_t>(grain, 1)));
  if (parts <= 1) {
    body(std::int64_t{0}, n);
    return;
  }
#ifdef _OPENMP
#pragma omp parallel num_threads(static_cast <int>(parts))
  {
    const std::int64_t part = omp_get_thread_num(), team = omp_get_num_threads();
    const std::int64_t begin = n * part / team, end = n * (part + 1) / team;
    if (begin < end) body(begin, end);
  }
#endif
}

/// Calls body(member, team) once on each of at most `team` threads; they may meet at team_barrier(team), all or none.
template <class Body>
void parallel_team(int team, Body&& body) {
#ifdef _OPENMP
  if (team > 1) {
#pragma omp parallel num_threads(team)
    body(omp_get_thread_num(), omp_get_num_threads());
    return;
  }
#endif
  static_cast<void>(team);
  body(0, 1);
}

/// Waits until all `team` members of the enclosing parallel_team are here.
inline void team_barrier(int team) {
#ifdef _OPENMP
  if (team > 1) {
#pragma omp barrier
  }
#endif
  static_cast<void>(team);
}

}  // namespace trireme
