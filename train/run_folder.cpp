#include "train/run_folder.h"

#include "core/error.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr const char* config_name = "config.json";
constexpr const char* metrics_name = "metrics.jsonl";

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
  const bool resumed = resume != "none" && inside(resume, path_);
  for (const char* name : {config_name, metrics_name}) {
    if (!resumed && fs::exists(path_ / name, unknown))
      fail(ExitCode::usage, "out",
           "{} already holds a run ({}); expected a new or empty folder; choose another --out, or go on with that run: "
           "--resume {}",
           path_.string(), name, path_.string());
  }
}

void RunFolder::open(const std::string& config) {
  if (path_.empty()) return;
  try {
    make_directories(path_);
    write_file(path_ / config_name, config);
    metrics_ = std::make_unique<AppendFile>(path_ / metrics_name);
  } catch (const Error& error) {
    const std::string_view what = error.what();
    fail(error.code(), "out", "{}; choose another --out", what.substr(what.find("] ") + 2));
  }
}

void RunFolder::log(const StepRecord& record) {
  if (metrics_) metrics_->line(to_json_line(record));
}

}  // namespace trireme
