#include "core/team.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "core/cores.h"
#include "core/error.h"

namespace trireme {
namespace team {
namespace {

// About the time of the serial work between two operations of a small model; waking a sleeping thread takes as long.
constexpr auto spin_time = std::chrono::microseconds(100);

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

/// Waits until `word` differs from `old`, and returns it.
template <class T>
T wait_for_other(std::atomic<T>& word, T old) {
  T now = word.load(std::memory_order_acquire);
  if (now != old) return now;
  const auto start = std::chrono::steady_clock::now();
  do {
    for (int i = 0; i < 32; ++i) {
      pause();
      if ((now = word.load(std::memory_order_acquire)) != old) return now;
    }
  } while (std::chrono::steady_clock::now() - start < spin_time);
  while ((now = word.load(std::memory_order_acquire)) == old) word.wait(old, std::memory_order_acquire);
  return now;
}

/// A job, which fits in one word so that a late member never mixes two jobs: a growing number, the number of parts, and
/// whether each part needs its own member.
struct TeamJob {
  std::uint64_t number = 0;
  int parts = 0;
  bool together = false;

  std::uint64_t word() const {
    return number << 17 | static_cast<std::uint64_t>(together) << 16 | static_cast<std::uint64_t>(parts);
  }
  static TeamJob of(std::uint64_t word) { return {word >> 17, static_cast<int>(word & 0xffff), (word >> 16 & 1) != 0}; }
};

thread_local bool inside_part = false;

class Team {
 public:
  Team(int members, OwnCores::Share cores) : cores_(cores), claimed_(static_cast<std::size_t>(members)) {
    try {
      for (int me = 1; me < members; ++me) workers_.emplace_back([this, me] { work(me); });
    } catch (const std::system_error& error) {
      const std::size_t started = workers_.size() + 1;
      dismiss();
      fail(ExitCode::usage, "threads",
           "{} threads: the system starts no more than {} here: {}; ask for fewer (set_threads(), "
           "or --threads), or raise its limits on threads and memory (ulimit -u, ulimit -v)",
           members, started, error.code().message());
    }
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  ~Team() { dismiss(); }

  int members() const { return static_cast<int>(claimed_.size()); }
  OwnCores::Share cores() const { return cores_; }

  void run(int parts, bool together, Body body) noexcept {
    const TeamJob job{++number_, parts, together};
    body_ = body;
    done_.store(0, std::memory_order_relaxed);
    post(job);
    take_parts(job, 0);
    for (int done = done_.load(std::memory_order_acquire); done != parts;) done = wait_for_other(done_, done);
  }

  void barrier(int parts) {
    const std::uint32_t meeting = meetings_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 < parts) {
      wait_for_other(meetings_, meeting);
      return;
    }
    arrived_.store(0, std::memory_order_relaxed);
    meetings_.store(meeting + 1, std::memory_order_release);
    meetings_.notify_all();
  }

 private:
  void dismiss() {
    stop_ = true;
    post({++number_, 0, false});
    for (std::thread& worker : workers_) worker.join();
  }

  void post(const TeamJob& job) {
    job_.store(job.word(), std::memory_order_release);
    job_.notify_all();
  }

  void work(int me) {
    if (cores_.parts > 0) OwnCores::keep_to(cores_, me);
    set_threads(1);
    current = this;
    for (std::uint64_t seen = 0; !stop_;) {
      seen = wait_for_other(job_, seen);
      take_parts(TeamJob::of(seen), me);
    }
  }

  void take_parts(const TeamJob& job, int first) {
    inside_part = true;
    if (job.together) {
      if (first < job.parts) take(job, first);
    } else {
      for (int i = 0; i < job.parts; ++i) take(job, (first + i) % job.parts);
    }
    inside_part = false;
  }

  // A job does not end before all its parts have begun. So a member that claims a part may read body_, even if it slept
  // for long after it read the job: it cannot claim a part of another job.
  void take(const TeamJob& job, int part) {
    std::atomic<std::uint64_t>& claimed = claimed_[static_cast<std::size_t>(part)];
    std::uint64_t last = claimed.load(std::memory_order_relaxed);
    if (last >= job.number || !claimed.compare_exchange_strong(last, job.number, std::memory_order_acq_rel)) return;
    (*body_)(part);
    if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == job.parts) done_.notify_one();
  }

 public:
  static thread_local Team* current;  ///< the team that this thread is a member of

 private:
  const OwnCores::Share cores_;
  std::vector<std::thread> workers_;                 // members 1, 2, ...; member 0 is the rank's own thread
  std::vector<std::atomic<std::uint64_t>> claimed_;  // per part: the last job in which somebody took it
  std::uint64_t number_ = 0;                         // of the last job
  std::optional<Body> body_;
  alignas(64) std::atomic<std::uint64_t> job_{0};
  alignas(64) std::atomic<int> done_{0};     // parts of the job that are over
  alignas(64) std::atomic<int> arrived_{0};  // at the barrier
  alignas(64) std::atomic<std::uint32_t> meetings_{0};
  std::atomic<bool> stop_{false};
};

thread_local Team* Team::current = nullptr;
thread_local bool over =
    false;  // the thread ends, and its team is gone: a static object's destructor may still compute

struct OwnTeam {
  std::unique_ptr<Team> team;
  ~OwnTeam() { over = true; }
};
thread_local OwnTeam own;

/// After fork(), the child has only this thread, and makes a team of its own. To destroy the old one would wait for
/// threads that do not exist there.
void forget_team_after_fork() {
  static const int registered = ::pthread_atfork(nullptr, nullptr, [] {
    [[maybe_unused]] const Team* const forgotten = own.team.release();
    Team::current = nullptr;
  });
  static_cast<void>(registered);
}

thread_local int wanted = 0;  // 0: the number of usable cores, within the quota

void run_one_by_one(int parts, Body body) noexcept {
  for (int part = 0; part < parts; ++part) body(part);
}

// A body may not throw; starting the threads may.
void run(int parts, bool together, Body body) {
  if (parts == 1 || ((inside_part || over) && !together)) return run_one_by_one(parts, body);
  if (inside_part) std::terminate();  // parts that wait for one another cannot take turns
  const OwnCores::Share cores = OwnCores::current();
  if (!own.team || own.team->members() < parts || own.team->cores() != cores) {
    forget_team_after_fork();
    own.team.reset();
    own.team = std::make_unique<Team>(std::max(parts, threads()), cores);
    Team::current = own.team.get();
  }
  own.team->run(parts, together, body);
}

}  // namespace

void run_parts(int parts, Body body) { run(parts, false, body); }
void run_together(int parts, Body body) { run(parts, true, body); }

void barrier(int parts) {
  if (parts > 1) Team::current->barrier(parts);
}

}  // namespace team

int threads() {
  if (team::inside_part || team::over) return 1;
  return team::wanted > 0 ? team::wanted : within_quota(static_cast<int>(usable_cores().size()));
}

void set_threads(int count) { team::wanted = std::max(1, count); }

}  // namespace trireme
