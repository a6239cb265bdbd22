// The folder with the checkpoints of a run: what they are called, which is the newest, which may go.
//
//   OUT/checkpoints/
//     step_00001000/                     complete: it was renamed to this after all in it was on disk
//     step_00002000.tmp.0123456789abcdef/  being written by a run that is alive, or left by one that is not
//     step_00001000.bak/, step_1000/     and whatever else has a name that no run writes: of a person, and left alone
//
// Read next: parallel/checkpoint/saver.h, which fills it.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "parallel/checkpoint/manifest.h"

namespace trireme::checkpoint {

std::string folder_name(std::int64_t step);  ///< "step_00001000"
/// Of a checkpoint that is being written. `nonce`: of this run.
std::string temporary_name(std::int64_t step, const std::string& nonce);
std::string make_nonce();

/// Something in the folder that has the name of a checkpoint.
struct Candidate {
  std::filesystem::path path;
  std::int64_t step = -1;   ///< as its manifest says, whatever its name; -1: it has no valid one
  std::string problem;      ///< why not
  bool unfinished = false;  ///< it never got its final name
  bool unread = false;      ///< the file system did not show it: it may be whole
};
/// Those in `checkpoints`, the newest by step first. Those without a valid manifest are no choice, only to be spoken
/// of: they stand where their names would put them.
std::vector<Candidate> candidates(const std::filesystem::path& checkpoints);

/// Whether this is a name that a run gives to a checkpoint, whole or being written.
bool has_checkpoint_name(const std::filesystem::path& folder);

/// Whether this is the name of a checkpoint whose writing was interrupted.
bool is_unfinished(const std::filesystem::path& folder);

/// Whether `folder` is a checkpoint: it has a manifest, valid or not. Throws ExitCode::io as is_there().
bool is_checkpoint(const std::filesystem::path& folder);

/// The manifest of `folder`. Throws ExitCode::io when it cannot be read, and ExitCode::data when it is no regular file,
/// larger than manifest_most_bytes (then nothing of it is read), or as parse_manifest().
Manifest read_manifest(const std::filesystem::path& folder);

/// How often runs that resumed from each checkpoint died before they had made a step: what fails twice is chosen last.
/// Kept in a file beside the checkpoints; for rank 0, which has the run's lock, and in its place for one that fails.
class ResumeAttempts {
 public:
  static constexpr int most = 2;
  explicit ResumeAttempts(const std::filesystem::path& checkpoints);
  int of(const std::filesystem::path& checkpoint) const;
  int begin(const std::filesystem::path& checkpoint);  ///< one more, durably; returns how many there were before
  void take_back(const std::filesystem::path& checkpoint, int before);  ///< not more than `before`; any number of times
  void succeeded();                                                     ///< a step was made: all is forgotten

 private:
  void write() const;

  std::filesystem::path file_;
  std::map<std::string, int> attempts_;  // by name of the checkpoint
};

/// Removes what runs that were interrupted left while they wrote or removed a checkpoint. The caller has the run's
/// lock.
void remove_leftovers(const std::filesystem::path& checkpoints);

/// Gives `temporary` its final name: complete from then on. What has that name already is removed.
void publish(const std::filesystem::path& temporary, const std::filesystem::path& final_path);

/// Keeps the newest `keep` checkpoints with valid manifests, `fresh` among them, and removes older ones. A checkpoint
/// first loses its name, durably, and is then removed, so that none is ever found half there. Throws ExitCode::data,
/// and removes nothing, when `fresh` itself is not valid.
void prune(const std::filesystem::path& checkpoints, std::int64_t keep, const std::filesystem::path& fresh);

}  // namespace trireme::checkpoint
