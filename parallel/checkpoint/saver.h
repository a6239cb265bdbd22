// Saver: writes checkpoints while training goes on.
//
//   Saver saver(out / "checkpoints", mesh, keep);
//   saver.begin(step, held_tensors(...), run);      // copies what this rank writes into host memory, and returns
//   ...                                             // a thread of each rank writes its file; training goes on
//   if (const auto saved = saver.poll()) ...        // at each step boundary: has it been committed, or failed?
//   if (const auto saved = saver.finish()) ...      // at the end: waits
//
// The commit makes a checkpoint either complete or absent, whatever fails and when:
//   1. every rank writes its file into step_N.tmp.NONCE, syncs it and reads it back;
//   2. at a step boundary the ranks agree that all files are written, and send their descriptions to rank 0;
//   3. rank 0's thread writes the manifest, syncs it and the folder, renames the folder to step_N, syncs its parent,
//      notes whether this is the best checkpoint, and prunes older ones;
//   4. at a later step boundary all ranks learn the result.
// The threads make no collective calls. Only begin(), poll() and finish() do, which all ranks call in the same order. A
// failure leaves earlier checkpoints as they are. Read next: parallel/checkpoint/rank_file.h,
// parallel/checkpoint/folder.h.
#pragma once

#include <chrono>
#include <future>
#include <optional>

#include "parallel/checkpoint/best.h"
#include "parallel/checkpoint/rank_file.h"

namespace trireme::checkpoint {

/// How a save ended: the same on every rank.
struct Saved {
  std::int64_t step = 0;
  std::filesystem::path path;
  std::uint64_t bytes = 0;   ///< of all files
  double seconds = 0;        ///< from begin() to the commit, while training went on
  double stall_seconds = 0;  ///< of these, how long this rank's training stood still
  std::string error;         ///< why it failed, without "trireme: [where]"; empty: it is committed
  std::string warning;       ///< committed, but best.json could not be written, or older checkpoints not pruned
};

/// Writes checkpoints while training goes on.
/// @snippet training_test.cpp checkpoint
class Saver {
 public:
  /// `checkpoints` is created by the first save; the folder above it is the run's, must exist and is never created.
  /// `keep`: how many checkpoints stay; not set: all. Collective; the caller has the lock of the run's folder.
  Saver(std::filesystem::path checkpoints, const DeviceMesh& mesh, std::optional<std::int64_t> keep);
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  /// Tries what a save needs, a folder in which all ranks can write, so that a run does not find out at its end. Leaves
  /// nothing behind. Throws ExitCode::io. Collective.
  void require_possible() const;

  bool busy() const { return phase_ != Phase::idle; }
  /// True while rank 0 commits: all files are written, and no failure of another rank can undo the save.
  bool committing() const { return phase_ == Phase::committing; }
  std::int64_t step() const { return saved_.step; }                  ///< of the save that is under way
  const std::filesystem::path& path() const { return saved_.path; }  ///< its final folder
  /// Starts a save; not while busy(). The tensors may be changed as soon as it returns. `validation_loss`: of these
  /// weights, if their validation loss is known and the best checkpoint is to be kept (parallel/checkpoint/best.h).
  /// Collective.
  void begin(std::int64_t step, const std::vector<HeldTensor>& held, std::map<std::string, std::string> run,
             std::optional<ValidationLoss> validation_loss = {});
  /// The result of the save, once it has ended; nothing before that, and only once. Collective.
  std::optional<Saved> poll();
  /// As poll(), but waits. Collective.
  std::optional<Saved> finish();
  /// As finish(), but waits at most `limit`: returns nothing if the save is still under way then. Collective.
  std::optional<Saved> finish_within(std::chrono::duration<double> limit);

 private:
  using Clock = std::chrono::steady_clock;
  enum class Phase : std::uint8_t { idle, writing, committing };

  template <class F>
  std::optional<Saved> timed(const F& f);
  std::optional<Saved> advance();
  std::optional<Saved> after_writing();
  Saved ended(std::string error);

  std::filesystem::path checkpoints_;
  const DeviceMesh& mesh_;
  std::optional<std::int64_t> keep_;
  std::string nonce_;

  Phase phase_ = Phase::idle;
  std::optional<ValidationLoss> validation_loss_;
  RankFile file_;
  std::filesystem::path temporary_;
  std::string refused_;                  // an error found before writing began
  std::future<Manifest> writing_;        // this rank's file
  std::future<std::string> committing_;  // rank 0; gives the warning
  Manifest manifest_;                    // rank 0: of all ranks, merged from their descriptions
  Saved saved_;
  Clock::time_point began_;
};

}  // namespace trireme::checkpoint
