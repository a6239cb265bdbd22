// Splits a kernel over the threads of its rank. Kernels split their *outputs*, so results depend neither on the size of
// the team nor on which member computes what.
// Read next: core/team.h.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/dry_run.h"
#include "core/heartbeat.h"
#include "core/team.h"

namespace trireme {

/// Calls body(begin, end) over disjoint ranges covering [0, n), at most one per thread, each at least `grain` long (or
/// n, if that is less).
template <class Body>
void parallel_for(std::int64_t n, std::int64_t grain, Body&& body) {
  if (n <= 0 || DryRun::skips_work()) return;
  Heartbeat::beat();
  const std::int64_t parts =
      std::min<std::int64_t>(threads(), std::max<std::int64_t>(1, n / std::max<std::int64_t>(grain, 1)));
  if (parts == 1) {
    body(std::int64_t{0}, n);
    return;
  }
  const auto part = [&](int index) { body(n * index / parts, n * (index + 1) / parts); };
  team::run_parts(static_cast<int>(parts), team::Body(part));
}

/// Calls body(part, parts) once for each part.
template <class Body>
void parallel_parts(int parts, Body&& body) {
  if (DryRun::skips_work()) return;
  Heartbeat::beat();
  const auto part = [&](int index) { body(index, parts); };
  team::run_parts(parts, team::Body(part));
}

/// Calls body(member, members) on `members` threads at the same time. Either all of them call team::barrier(members),
/// or none.
template <class Body>
void parallel_team(int members, Body&& body) {
  if (DryRun::skips_work()) return;
  Heartbeat::beat();
  const auto part = [&](int index) { body(index, members); };
  team::run_together(members, team::Body(part));
}

}  // namespace trireme
