// ResumeAttempts: counts for each checkpoint how often a run that resumed from it died before its first step. A
// checkpoint that failed twice is chosen last, until it is saved anew. Kept in a file beside the checkpoints. Used by
// rank 0, which has the run's lock, or by a failing rank in its place.
// Read next: train/runs/resume_mark.h, which begins and takes back attempts.
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace trireme::checkpoint {

class ResumeAttempts {
 public:
  static constexpr const char* file_name = "resuming";
  static constexpr int most = 2;

  explicit ResumeAttempts(const std::filesystem::path& checkpoints);
  int of(const std::filesystem::path& checkpoint) const;  ///< how many so far
  int begin(const std::filesystem::path& checkpoint);     ///< one more, durably; returns how many there were before
  void take_back(const std::filesystem::path& checkpoint, int before);  ///< lowers the count to `before`; repeatable
  /// A run made a step from `checkpoint`: clears its count and those of older ones. Newer ones keep theirs, because the
  /// run has left their steps behind: its metrics end before them.
  void succeeded(const std::filesystem::path& checkpoint);

 private:
  void write();

  std::filesystem::path file_;
  std::map<std::string, int> attempts_;  // by name of the checkpoint
};

}  // namespace trireme::checkpoint
