// The folder with the checkpoints of a run: their names, which is the newest, which may be removed.
//
//   OUT/checkpoints/
//     step_00001000/                     complete: renamed to this after all its files were on disk
//     step_00002000.tmp.0123456789abcdef/  being written, or left by a run that died
//     step_00001000.bak/, step_1000/     other names, which no run writes: never touched
//     best.json                          which one has the lowest validation loss (parallel/checkpoint/best.h)
//     resuming                           failed attempts to resume (parallel/checkpoint/resume_attempts.h)
//
// Read next: parallel/checkpoint/saver.h, which fills it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "parallel/checkpoint/best.h"
#include "parallel/checkpoint/manifest.h"

namespace trireme::checkpoint {

std::string folder_name(std::int64_t step);  ///< "step_00001000"
/// The name of a checkpoint that is being written. `nonce`: of this run.
std::string temporary_name(std::int64_t step, const std::string& nonce);
/// A number that no other save has, in hexadecimal digits.
std::string make_nonce();

/// An entry of the folder that has the name of a checkpoint.
struct Candidate {
  std::filesystem::path path;
  std::int64_t step = -1;   ///< -1: the manifest is not valid, or of another step than the folder's name
  std::string problem;      ///< why it is not valid
  bool unfinished = false;  ///< it never got its final name
  bool unread = false;      ///< the file system failed to read it: it may be intact
  std::optional<ValidationLoss> validation_loss = {};  ///< if its step was evaluated
};
/// Those in `checkpoints`, highest step first. Those without a valid manifest are listed only for messages, at the step
/// of their name.
std::vector<Candidate> candidates(const std::filesystem::path& checkpoints);

/// True if a run gives this name to a checkpoint, complete or being written.
bool has_checkpoint_name(const std::filesystem::path& folder);

/// Says how a folder's name contradicts the step of its manifest; empty if it does not. A copy under any name that no
/// run gives to a checkpoint is fine.
std::string name_problem(const std::filesystem::path& folder, std::int64_t step);

/// True if this is the name of a checkpoint whose writing was interrupted.
bool is_unfinished(const std::filesystem::path& folder);

/// True if `folder` has a manifest, valid or not. Throws ExitCode::io like is_there().
bool is_checkpoint(const std::filesystem::path& folder);

/// The manifest of `folder`. Throws ExitCode::io when it cannot be read, and ExitCode::data when it is not a regular
/// file, is larger than manifest_most_bytes (then nothing of it is read), or is refused by parse_manifest().
Manifest read_manifest(const std::filesystem::path& folder);

/// Removes what interrupted runs left behind while they wrote or removed a checkpoint. The caller has the run's
/// lock.
void remove_leftovers(const std::filesystem::path& checkpoints);

/// Renames `temporary` to its final name, which makes it complete. Removes what already has that name.
void publish(const std::filesystem::path& temporary, const std::filesystem::path& final_path);

/// Keeps `fresh`, the best checkpoint, and of the others the newest ones with valid manifests, so that `keep` stay
/// (not set: all). Checkpoints that were saved only because they were the best are not counted, and are removed when
/// they are neither `fresh` nor the best any more. A checkpoint is first renamed, durably, and then removed, so that no
/// partial checkpoint is ever found. Throws ExitCode::data, and removes nothing, when `fresh` itself is not valid.
void prune(const std::filesystem::path& checkpoints, std::optional<std::int64_t> keep,
           const std::filesystem::path& fresh);

}  // namespace trireme::checkpoint
