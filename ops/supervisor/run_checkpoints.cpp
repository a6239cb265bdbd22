#include "ops/supervisor/run_checkpoints.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "parallel/checkpoint/folder.h"
#include "parallel/checkpoint/resume_attempts.h"
#include "train/runs/origin.h"
#include "train/runs/saved_run.h"

namespace trireme::supervisor {
namespace {

namespace fs = std::filesystem;

/// The step of the checkpoint that --resume `path` refers to; -1 if it cannot be read.
std::int64_t step_at(const fs::path& path) {
  try {
    return checkpoint::read_manifest(find_saved_run(path)).step;
  } catch (const Error&) { return -1; }  // the job reports why
}

}  // namespace

std::int64_t RunCheckpoints::newest() const {
  std::int64_t newest = -1;
  for (const checkpoint::Candidate& found : checkpoint::candidates(out_ / "checkpoints"))
    newest = std::max(newest, found.step);
  return newest;
}

bool RunCheckpoints::has_own() const {
  return newest() >= 0 && (resumed_path_.empty() || begun_ || was_begun_from(out_, resumed_path_));
}

std::int64_t RunCheckpoints::next_step() const {
  if (!resumed_path_.empty() && !has_own()) return step_at(resumed_path_);
  const checkpoint::ResumeAttempts attempts(out_ / "checkpoints");
  std::int64_t last = -1;
  for (const checkpoint::Candidate& found : checkpoint::candidates(out_ / "checkpoints")) {  // newest first
    if (found.step < 0) continue;
    if (attempts.of(found.path) < checkpoint::ResumeAttempts::most) return found.step;
    last = std::max(last, found.step);
  }
  return last;
}

std::string RunCheckpoints::next_start() const {
  const std::int64_t step = next_step();
  const std::string path = has_own() ? std::string() : resumed_path_;
  if (step < 0) return path.empty() ? "the beginning" : path;
  return fmt::format("step {}{}{}", step, path.empty() ? "" : " of ", path);
}

}  // namespace trireme::supervisor
