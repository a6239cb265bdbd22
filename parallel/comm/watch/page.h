// What a rank shows the others: its place in the program, heartbeats, what it waits for, its last operations and the
// times of its last steps. A page lies in memory that the ranks of a node share, so that it is readable even if its
// rank is stopped or dead. Only the rank's own process writes it (beacon.h); everyone may read it at any time without
// waiting.
// Read next: parallel/comm/watch/beacon.h.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "core/heartbeat.h"
#include "parallel/comm/collective.h"
#include "parallel/comm/watch/seqlocked.h"

namespace trireme {

/// What a rank does within a step, and between steps. These names appear in the table of times (train/program/timer.h)
/// and in messages about late ranks.
enum class Phase : std::uint8_t { data, forward, backward, communication, optimizer, evaluation, sampling, saving };
inline constexpr int phases = 8;
std::string_view name(Phase phase);
/// True if a phase is part of training steps; the other phases come between steps.
inline bool in_step(Phase phase) { return phase < Phase::evaluation; }

using PhaseSeconds = std::array<double, phases>;

namespace watch {

/// One operation in the flight recorder.
struct Record {
  enum class What : std::uint8_t { collective, send, recv, subgroup };

  std::uint64_t number = 0;     ///< among the rank's records, from 1; 0: none
  std::uint64_t sequence = 0;   ///< among the collectives of its group, from 1; 0 for messages
  std::int64_t begun = 0;       ///< nanoseconds of the node's steady clock
  std::int64_t ended = 0;       ///< 0: under way
  std::int64_t step = -1;       ///< -1: before the first
  comm::Signature signature{};  ///< of a message: dtype and count
  int peer = 0, tag = 0;        ///< of a message; peer is a world rank
  What what = What::collective;
  std::int8_t phase = -1;         ///< Phase; -1: none
  FixedText<40> group{}, site{};  ///< name of its group; what the program was doing (call_site.h)
};
/// "all_reduce(sum of 64 f32) #119 of group 'dp[pp=0]'", "recv(64 f32, tag 3) from rank 2 in group 'pp[...]'".
std::string to_string(const Record& record);

/// Whom a rank waits for, if it waits.
struct Waiting {
  static constexpr int most_ranks = 512;

  std::uint64_t record = 0;  ///< the operation it waits in (Record::number); 0: none
  bool blocked = false;      ///< the rank's own thread waits; otherwise only one of its communication threads
  bool more = false;         ///< it also waits for ranks from most_ranks up
  std::array<std::uint64_t, most_ranks / 64> ranks{};  ///< a bit for each world rank it waits for

  void add(int rank);
  std::vector<int> list() const;
};

/// Seconds that a rank itself worked in each phase of a step, without waiting for other ranks or for a processor.
struct StepTimes {
  std::int64_t step = -1;
  std::array<float, phases> seconds{};
};

enum class RankState : std::uint8_t { absent, running, failed, ended };

struct RankPage {
  static constexpr int records = 200, steps = 16;

  alignas(64) Heartbeat::Counter beats{0};
  /// Increased by the process's watchdog several times a second, as long as the process runs.
  alignas(64) std::atomic<std::uint64_t> watchdog_ticks{0};
  std::atomic<RankState> state{RankState::absent};
  std::atomic<std::int64_t> process{0}, thread{0};  ///< system ids, for vital_signs.h
  std::atomic<std::uint64_t> process_space{0};      ///< the pid namespace of those ids
  std::atomic<std::int64_t> step{-1};
  std::atomic<int> phase{-1};      ///< Phase; -1: none
  std::atomic<int> work{0};        ///< ranks with equal `work` do the same: their times are comparable
  SeqLocked<FixedText<64>> place;  ///< "rank 5 (dp=0,tp=1,pp=1)"
  SeqLocked<FixedText<40>> site;   ///< CallSite::current()
  SeqLocked<Waiting> waiting;
  std::atomic<std::uint64_t> recorded{0};
  std::array<SeqLocked<Record>, records> ring;
  std::array<SeqLocked<StepTimes>, steps> times;

  /// The records still in the ring, oldest first.
  std::vector<Record> history() const;
  std::optional<Record> record(std::uint64_t number) const;  ///< unless it has been overwritten
};

/// The pages of all ranks that are visible from here.
class RankPages {
 public:
  /// In memory of this process, for ranks that are its threads.
  explicit RankPages(int ranks);
  /// By world rank; null for those on other nodes. They must outlive this object.
  explicit RankPages(std::vector<RankPage*> pages) : pages_(std::move(pages)) {}

  int ranks() const { return static_cast<int>(pages_.size()); }
  bool visible(int rank) const { return pages_[static_cast<std::size_t>(rank)] != nullptr; }
  RankPage& page(int rank) const { return *pages_[static_cast<std::size_t>(rank)]; }  ///< of a visible rank

  std::string place(int rank) const;  ///< "rank 5 (dp=0,tp=1,pp=1)", or "rank 5"

 private:
  std::vector<std::unique_ptr<RankPage>> own_;
  std::vector<RankPage*> pages_;
};

}  // namespace watch
}  // namespace trireme
