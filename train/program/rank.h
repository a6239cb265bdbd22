// Rank: the start parameters and the state of one rank of a job. Read next: train/launch/ranks.h, which starts them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "parallel/comm/process_group.h"
#include "parallel/comm/watch/straggler.h"
#include "parallel/mesh/mesh.h"

namespace trireme {

/// The folder of --out, for the flight record: another thread may ask for it when a rank is lost.
class FolderName {
 public:
  explicit FolderName(std::string path) : path_(std::move(path)) {}
  /// The path; empty: none.
  std::string get() const {
    const std::lock_guard lock(mutex_);
    return path_;
  }
  /// Sets the path.
  void set(std::string path) {
    const std::lock_guard lock(mutex_);
    path_ = std::move(path);
  }

 private:
  mutable std::mutex mutex_;
  std::string path_;
};

/// The start parameters of one rank. The body sets the place in the mesh and the current step, for messages if this
/// rank fails or is lost.
struct Rank {
  std::shared_ptr<ProcessGroup> world;
  std::string where;               ///< "rank 5 (dp=0,tp=1,pp=1)"
  std::int64_t step = -1;          ///< the current step; -1 before the first
  std::string traffic{};           ///< on a GPU: how tensors move between ranks, for the table
  int exit_code = 0;               ///< the program's exit code if all ranks return; the same on every rank
  std::string unfinished_save{};   ///< if this rank fails: what happened to a save under way, for the message; or empty
  std::function<void()> failed{};  ///< called if this rank fails, but not if another rank was lost; or nothing

  std::shared_ptr<FolderName> folder{};  ///< shared by the ranks of a process

  std::shared_ptr<watch::StragglerWatch> stragglers{};  ///< set on one rank of each node

  bool first() const { return world->rank() == 0; }
  /// Publishes this rank's place, and its pipeline stage: its times are compared with ranks of the same stage.
  void enter(const DeviceMesh& mesh);
  /// Call when a step begins; the step before it has ended. Warns of ranks that delay the others.
  void begin_step(std::int64_t number);
};

}  // namespace trireme
