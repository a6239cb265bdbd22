// The origin of a run: new weights, or another run's checkpoint (--resume PATH), and the record of it in the run's
// folder. A restarted run needs the record. Until it has saved something itself, it begins again from PATH; later it
// resumes from its own checkpoint. A folder that holds any other run is refused.
//
//   each checkpoint's "origin"   PATH, as long as the run exists
//   config.json's "resume"       also PATH, until a start with --resume auto writes auto there
//
// Read next: train/runs/run_folder.h, ops/supervisor/supervisor.cpp, which ask; train/runs/run_texts.h.
#pragma once

#include <filesystem>
#include <string>

namespace trireme {

/// True if `path` is `folder` or lies in it.
bool lies_in(const std::filesystem::path& path, const std::filesystem::path& folder);

/// True if a run with this --resume and this `out` begins from another run's checkpoint.
bool begins_elsewhere(const std::string& resume, const std::filesystem::path& out);

/// True if the run in `out` began with --resume `resume`, the path of a checkpoint. Its newest checkpoint says so, or
/// config.json if that checkpoint does not say. A missing or damaged config.json counts as no answer.
bool was_begun_from(const std::filesystem::path& out, const std::string& resume);

}  // namespace trireme
