// Vector clocks: what each actor of a block knows of the others. (Lamport, Time, clocks, and the ordering of events,
// 1978; Fidge and Mattern, 1988; their use on memory accesses: Flanagan and Freund, FastTrack, 2009.)
//
// An *actor* is anything whose accesses happen in an order: a CUDA thread, the cp.async copies of a thread, the wgmma
// of a warp group, the TMA loads that report to one mbarrier. Each numbers its steps. If B knows step n of actor A, all
// that A did up to step n happens before B. Two accesses race if neither knows the other.
// Read next: cuda/emu/race.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace trireme::cuda::emu {

using Step = std::uint32_t;
using Steps = std::vector<Step>;  ///< by actor: the last step known; actors past the end: 0, nothing

inline Step step_of(const Steps& steps, std::size_t actor) { return actor < steps.size() ? steps[actor] : 0; }

inline void raise(Steps& steps, std::size_t actor, Step step) {
  if (step == 0) return;
  if (steps.size() <= actor) steps.resize(actor + 1, 0);
  steps[actor] = std::max(steps[actor], step);
}

/// into: what either knows.
inline void join(Steps& into, const Steps& from) {
  if (into.size() < from.size()) into.resize(from.size(), 0);
  for (std::size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

/// into: what both know.
inline void meet(Steps& into, const Steps& from) {
  into.resize(std::min(into.size(), from.size()));
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = std::min(into[i], from[i]);
}

/// `seen`: what happened before. `fenced`: the part of it that a proxy fence has made visible to TMA and wgmma.
struct Knowledge {
  Steps seen, fenced;
};

inline void join(Knowledge& into, const Knowledge& from) {
  join(into.seen, from.seen);
  join(into.fenced, from.fenced);
}

inline void meet(Knowledge& into, const Knowledge& from) {
  meet(into.seen, from.seen);
  meet(into.fenced, from.fenced);
}

}  // namespace trireme::cuda::emu
