// Threads are pinned to their own cores, and released again. With one core there is nothing to divide, and the parts of
// these tests that need two are left out.
#include "core/cores.h"

#include <doctest/doctest.h>
#include <sched.h>

#include <cstdlib>
#include <set>
#include <thread>

#include "core/parallel_for.h"

using namespace trireme;

namespace {

using Cores = std::set<int>;

Cores cores_of_this_thread() {
  cpu_set_t set;
  CPU_ZERO(&set);
  REQUIRE(sched_getaffinity(0, sizeof set, &set) == 0);
  Cores cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(static_cast<std::size_t>(core), &set)) cores.insert(core);
  return cores;
}

Cores all_cores() { return {usable_cores().begin(), usable_cores().end()}; }

/// The cores of each member of the calling thread's team.
std::vector<Cores> cores_of_team(int members) {
  std::vector<Cores> cores(static_cast<std::size_t>(members));
  parallel_team(members, [&](int member, int) { cores[static_cast<std::size_t>(member)] = cores_of_this_thread(); });
  return cores;
}

Cores joined(const std::vector<Cores>& parts) {
  Cores all;
  std::size_t count = 0;
  for (const Cores& part : parts) {
    all.insert(part.begin(), part.end());
    count += part.size();
  }
  CHECK(all.size() == count);  // none twice
  return all;
}

/// Runs f on a new thread, whose team ends with it.
template <class F>
void on_a_thread(F&& f) {
  std::thread(f).join();
}

/// Made before main() begins, so it is destroyed after everything made later. A thread that starts even then must still
/// find the list of cores.
class AtExit {
 public:
  AtExit() = default;
  ~AtExit() {
    cpu_set_t before, after;
    sched_getaffinity(0, sizeof before, &before);
    std::thread([&after] {
      use_all_cores();
      sched_getaffinity(0, sizeof after, &after);
    }).join();
    if (CPU_EQUAL(&before, &after) == 0) std::abort();
  }
  AtExit(const AtExit&) = delete;
  AtExit& operator=(const AtExit&) = delete;
};

const AtExit at_exit;

}  // namespace

TEST_CASE("the members of a team share out the cores, each its own, and have all of them again afterwards") {
  const int cores = static_cast<int>(usable_cores().size());
  CHECK(all_cores() == cores_of_this_thread());
  on_a_thread([cores] {
    set_threads(cores);
    for (const Cores& member : cores_of_team(cores)) CHECK(member == all_cores());
    {
      const OwnCores own(0, cores);
      const std::vector<Cores> members = cores_of_team(cores);
      CHECK(joined(members) == all_cores());
      for (const Cores& member : members) CHECK(member.size() == 1);
    }
    CHECK(cores_of_this_thread() == all_cores());
    for (const Cores& member : cores_of_team(cores)) CHECK(member == all_cores());
  });
}

TEST_CASE("ranks share out the cores, whole runs of them where there are more than threads") {
  const int cores = static_cast<int>(usable_cores().size()), ranks = cores > 1 ? 2 : 1;
  std::vector<Cores> parts(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank)
    on_a_thread([&parts, rank, ranks] {
      const OwnCores own(rank, ranks);
      parts[static_cast<std::size_t>(rank)] = cores_of_this_thread();
    });
  CHECK(joined(parts) == all_cores());
}

TEST_CASE("more threads than cores run wherever the system has them run") {
  const int cores = static_cast<int>(usable_cores().size());
  on_a_thread([cores] {
    const OwnCores own(0, cores + 1);
    CHECK(OwnCores::current() == OwnCores::Share{});
    CHECK(cores_of_this_thread() == all_cores());
  });
}

TEST_CASE("a thread that works beside a rank runs on all cores") {
  on_a_thread([] {
    const OwnCores own(0, static_cast<int>(usable_cores().size()));
    on_a_thread([] {
      use_all_cores();
      CHECK(cores_of_this_thread() == all_cores());
    });
  });
}

TEST_CASE("the number of cores is not what one thread keeps to") {
  on_a_thread([] {
    const OwnCores own(0, static_cast<int>(usable_cores().size()));
    CHECK(threads() == within_quota(static_cast<int>(usable_cores().size())));
  });
}
