#include "core/cores.h"

#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <span>

namespace trireme {
namespace {

thread_local OwnCores::Share share_of_thread;

std::vector<int> cores_in_mask() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(static_cast<std::size_t>(core), &set)) cores.push_back(core);
  if (cores.empty()) cores.push_back(0);
  return cores;
}

/// Sets the cores of the calling thread. If the system refuses, the thread runs where the system puts it.
void set_mask(std::span<const int> cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(static_cast<std::size_t>(core), &set);
  static_cast<void>(sched_setaffinity(0, sizeof set, &set));
}

}  // namespace

const std::vector<int>& usable_cores() {
  // Read before the first thread is pinned: OwnCores calls this first. Never destroyed: threads that move messages or
  // watch the ranks start and end while the process exits.
  static const auto* const cores = new std::vector<int>(cores_in_mask());
  return *cores;
}

int within_quota(int cores, std::optional<double> quota) {
  return quota ? std::max(1, static_cast<int>(std::min<double>(*quota, cores))) : cores;
}

OwnCores::OwnCores(int first, int parts) : outer_(share_of_thread) {
  if (parts < 2 || static_cast<std::size_t>(parts) > usable_cores().size()) return;
  outer_cores_ = cores_in_mask();
  share_of_thread = {first, parts};
  keep_to(share_of_thread, 0);
}

OwnCores::~OwnCores() {
  if (outer_cores_.empty()) return;
  share_of_thread = outer_;
  set_mask(outer_cores_);
}

OwnCores::Share OwnCores::current() { return share_of_thread; }

void OwnCores::keep_to(const Share& share, int member) {
  const std::span<const int> all = usable_cores();
  const int part = share.first + member, count = static_cast<int>(all.size());
  if (part >= share.parts) return use_all_cores();  // the team is larger than the share provides for
  const int begin = count * part / share.parts, end = count * (part + 1) / share.parts;
  set_mask(all.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)));
}

void use_all_cores() { set_mask(usable_cores()); }

}  // namespace trireme
