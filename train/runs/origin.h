// Where a run began: with new weights, or from another run's checkpoint (--resume PATH), and what its folder says of
// that. A run that is started again needs to know: until it has saved something itself it begins there once more, later
// it goes on from what it saved, and a folder that holds any other run is refused.
//
//   each checkpoint's "origin"   PATH, for as long as the run lives
//   config.json's "resume"       PATH too, until a start with --resume auto writes auto there
//
// Read next: train/runs/run_folder.h, train/supervisor/supervisor.cpp, which ask; train/runs/run_texts.h.
#pragma once

#include <filesystem>
#include <string>

namespace trireme {

/// Whether `path` is `folder` or lies in it.
bool lies_in(const std::filesystem::path& path, const std::filesystem::path& folder);

/// Whether a run that writes to `out` and is told --resume `resume` begins from another run's checkpoint.
bool begins_elsewhere(const std::string& resume, const std::filesystem::path& out);

/// Whether what is in `out` was begun with --resume `resume`, the path of a checkpoint, as its newest checkpoint says,
/// or config.json where that says nothing. A config.json that is missing or damaged says nothing either.
bool was_begun_from(const std::filesystem::path& out, const std::string& resume);

}  // namespace trireme
