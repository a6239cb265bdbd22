#include "train/run_folder.h"

#include "core/error.h"
#include "train/saved_run.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr const char* config_name = "config.json";
constexpr const char* metrics_name = "metrics.jsonl";
constexpr const char* lock_name = ".lock";

/// Whether `path` is `folder` or lies in it.
bool inside(const fs::path& path, const fs::path& folder) {
  const fs::path relative = fs::weakly_canonical(path).lexically_relative(fs::weakly_canonical(folder));
  return !relative.empty() && *relative.begin() != "..";
}

}  // namespace

RunFolder::RunFolder(fs::path out, const std::string& resume) : path_(std::move(out)) {
  if (path_.empty()) return;
  std::error_code unknown;  // what cannot be looked at is reported by open()
  if (fs::exists(path_, unknown) && !fs::is_directory(path_, unknown))
    fail(ExitCode::usage, "out", "{} is a file; expected a folder, or a name not taken yet; change --out",
         path_.string());
  resumed_ = resume != "none" && inside(resume, path_);
  if (resumed_) {
    require_newest(resume);
  } else {
    require_empty();
  }
}

/// A run that went on from an older checkpoint would write steps and checkpoints that are there already.
void RunFolder::require_newest(const fs::path& resume) const {
  const fs::path chosen = find_saved_run(resume), newest = find_saved_run(path_);
  if (fs::weakly_canonical(chosen) == fs::weakly_canonical(newest)) return;
  fail(ExitCode::usage, "out",
       "{} holds a newer checkpoint than {}, {}; expected the newest one; choose another --out to go on from the older",
       path_.string(), chosen.string(), newest.string());
}

void RunFolder::require_empty() const {
  std::error_code unknown;
  for (const char* name : {config_name, metrics_name}) {
    if (!fs::exists(path_ / name, unknown)) continue;
    fail(ExitCode::usage, "out",
         "{} already holds a run ({}); expected a new or empty folder; choose another --out, or {}", path_.string(),
         name,
         holds_saved_run(path_) ? fmt::format("go on with that run: --resume {}", path_.string())
                                : "remove the folder: that run ended before it saved anything");
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(path_, unknown)) {
    if (entry.path().filename() == lock_name) continue;
    fail(ExitCode::usage, "out", "{} is not empty: it holds {}; expected a new or empty folder; choose another --out",
         path_.string(), entry.path().filename().string());
  }
}

void RunFolder::open(const std::string& config) {
  if (path_.empty()) return;
  try {
    make_directories(path_);
    lock_ = std::make_unique<FileLock>(path_ / lock_name);
    if (!resumed_) require_empty();  // another run may have begun and ended here since the first look
    write_file(path_ / config_name, config);
    metrics_ = std::make_unique<AppendFile>(path_ / metrics_name);
  } catch (const Error& error) {
    if (error.code() == ExitCode::usage) throw;
    if (error.code() == ExitCode::locked)
      fail(ExitCode::locked, "out", "another run is writing to {}; wait for it to end, or choose another --out",
           path_.string());
    const std::string_view what = error.what();
    fail(error.code(), "out", "{}; choose another --out", what.substr(what.find("] ") + 2));
  }
}

void RunFolder::log(const StepRecord& record) {
  if (metrics_) metrics_->line(to_json_line(record));
}

}  // namespace trireme
