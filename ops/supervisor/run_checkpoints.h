// RunCheckpoints: the checkpoints in the folder of a supervised run, and the one that a job started now resumes from.
// Read next: parallel/checkpoint/folder.h, parallel/checkpoint/resume_attempts.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace trireme::supervisor {

class RunCheckpoints {
 public:
  /// `out`: the run's folder. `resumed_path`: the PATH of --resume PATH, or empty.
  RunCheckpoints(std::filesystem::path out, std::string resumed_path)
      : out_(std::move(out)), resumed_path_(std::move(resumed_path)) {}

  /// Call when a job has written its configuration, so the folder belongs to this run.
  void set_begun() { begun_ = true; }
  bool begun() const { return begun_; }

  /// The largest step with a valid manifest; -1 if there is none.
  std::int64_t newest() const;
  /// True if the folder holds a checkpoint of this run. With --resume PATH, a checkpoint that belongs to an unrelated
  /// run does not count; the job refuses such a folder.
  bool has_own() const;
  /// The step of the checkpoint that a job started now resumes from, if it is not damaged. -1: the beginning, or
  /// another run's checkpoint whose step is unknown.
  std::int64_t next_step() const;
  /// The start of a job started now, for people: "step 20", "step 20 of PATH", "the beginning".
  std::string next_start() const;

 private:
  std::filesystem::path out_;
  std::string resumed_path_;
  bool begun_ = false;
};

}  // namespace trireme::supervisor
