#include "train/runs/run_folder.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/error.h"
#include "parallel/checkpoint/folder.h"
#include "train/program/screen.h"
#include "train/runs/data_list.h"
#include "train/runs/origin.h"
#include "train/runs/saved_run.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr const char* lock_name = ".lock";

/// True for a temporary file that a killed run left behind (core/io.h).
bool is_leftover(const std::string& name) {
  for (const std::string written : {RunFolder::config_name, RunFolder::metrics_name, data_list_name})
    if (name.starts_with(written + ".tmp.")) return true;
  return false;
}

/// A run can be resumed without config.json: the checkpoint has everything that is needed.
bool holds_checkpoint(const fs::path& out) {
  const std::vector<checkpoint::Candidate> all = checkpoint::candidates(out / "checkpoints");
  return std::any_of(all.begin(), all.end(), [](const checkpoint::Candidate& c) { return !c.unfinished; });
}

/// True if the run began from this checkpoint of another run before, and ended without a save. It then begins again.
bool begins_again(const fs::path& out, const std::string& resume) {
  return begins_elsewhere(resume, out) && !holds_checkpoint(out) && was_begun_from(out, resume);
}

void warn(const std::string& text) { Screen::of_process().warning(text); }

}  // namespace

RunFolder::RunFolder(fs::path out, const std::string& resume) : path_(std::move(out)) {
  if (path_.empty()) return;
  std::error_code unknown;  // other failures are reported by open()
  if (fs::exists(path_, unknown) && !fs::is_directory(path_, unknown))
    fail(ExitCode::usage, "out", "{} is a file; expected a folder, or a name not taken yet; change --out",
         path_.string());
  require_possible();
  const bool automatic = automatic_ = resume == "auto";
  begins_again_ = begins_again(path_, resume);
  resumed_ = automatic ? fs::exists(path_ / config_name, unknown) || holds_checkpoint(path_)
                       : resume != "none" && (lies_in(resume, path_) || begins_again_);
  if (resumed_) {
    if (!automatic && !begins_elsewhere(resume, path_)) require_newest(resume);
  } else {
    // A run that is still active is reported as such, not as one that ended.
    name_out([&] { FileLock::require_free(path_ / lock_name); });
    require_empty();
  }
}

/// If it resumed from an older checkpoint, the run would write steps and checkpoints that already exist.
void RunFolder::require_newest(const fs::path& resume) const {
  const fs::path chosen = find_saved_run(resume);
  for (const checkpoint::Candidate& newest : checkpoint::candidates(path_ / "checkpoints")) {
    if (newest.unread)
      fail(ExitCode::io, "out",
           "{}; it may be a newer checkpoint than {}: repair access to it, or choose another --out", newest.problem,
           chosen.string());
    if (newest.step < 0) continue;
    if (fs::weakly_canonical(chosen) == fs::weakly_canonical(newest.path)) return;
    fail(ExitCode::usage, "out",
         "{} holds a newer checkpoint than {}, {}; expected the newest one; choose another --out to go on from the "
         "older, or remove the newer",
         path_.string(), chosen.string(), newest.path.string());
  }
}

/// Finds out early, and without a trace, whether open() could create the folder and write there.
void RunFolder::require_possible() const {
  const auto refuse = [this](const std::string& why) {
    fail(ExitCode::io, "out", "{} cannot be created: {}; choose another --out", path_.string(), why);
  };
  std::error_code error;
  fs::path there = fs::absolute(path_, error);
  if (error) refuse("there is no current folder: " + error.message());
  while (true) {
    const fs::file_status status = fs::status(there, error);
    std::error_code unknown;
    if (fs::exists(status)) break;
    if (fs::is_symlink(fs::symlink_status(there, unknown)))
      refuse(fmt::format("{} is a symbolic link to nothing{}", there.string(),
                         status.type() == fs::file_type::not_found ? "" : ": " + error.message()));
    if (status.type() != fs::file_type::not_found && error != std::errc::permission_denied)
      refuse(fmt::format("{}: {}", there.string(), error.message()));
    if (!there.has_relative_path()) break;
    there = there.parent_path();
  }
  if (!fs::is_directory(there, error)) refuse(there.string() + " is not a folder");
  if (::access(there.c_str(), W_OK | X_OK) != 0)
    fail(ExitCode::io, "out", "{} cannot be written: {}: {}; choose another --out", path_.string(), there.string(),
         std::strerror(errno));
}

bool RunFolder::has_made(std::int64_t steps) const {
  if (!automatic_ || path_.empty()) return false;
  const std::vector<checkpoint::Candidate> all = checkpoint::candidates(path_ / "checkpoints");
  return !all.empty() && all.front().step >= steps;
}

void RunFolder::require_empty() const {
  std::error_code unknown;
  for (const char* name : {config_name, metrics_name}) {
    if (!fs::exists(path_ / name, unknown)) continue;
    fail(ExitCode::usage, "out",
         "{} already holds a run ({}); expected a new or empty folder; choose another --out, or {}", path_.string(),
         name,
         checkpoint::candidates(path_ / "checkpoints").empty()
             ? "remove the folder: that run ended before it saved anything"
             : fmt::format("go on with that run: --resume {}", path_.string()));
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(path_, unknown)) {
    const std::string name = entry.path().filename().string();
    if (name == lock_name || name == incidents_name || is_leftover(name)) continue;
    fail(ExitCode::usage, "out", "{} is not empty: it holds {}; expected a new or empty folder; choose another --out",
         path_.string(), name);
  }
}

void RunFolder::name_out(const std::function<void()>& f) const {
  try {
    f();
  } catch (const Error& error) {
    if (error.code() == ExitCode::usage) throw;
    const std::string what = error.what();
    const std::size_t owner = what.find('('), end = what.find(')', owner);
    if (error.code() == ExitCode::locked)
      fail(ExitCode::locked, "out", "another run is writing to {}{}; wait for it to end, or choose another --out",
           path_.string(), owner == std::string::npos ? "" : " " + what.substr(owner, end + 1 - owner));
    if (error.code() == ExitCode::io && resumed_)  // do not suggest another --out: the run would begin again there
      fail(ExitCode::io, "out",
           "{}; what is saved in {} is as it was: make room, or mend what failed, and the same command goes on with it",
           error.reason(), path_.string());
    fail(error.code(), "out", "{}; choose another --out", error.reason());
  }
}

void RunFolder::move_to(const fs::path& created) {
  lock_.reset();
  path_ = created;
}

void RunFolder::lock() {
  std::error_code unknown;
  if (path_.empty() || !fs::is_directory(path_, unknown) || lock_ != nullptr) return;
  name_out([&] { lock_ = std::make_unique<FileLock>(path_ / lock_name, warn); });
}

std::string RunFolder::open(const std::string& config, std::int64_t steps, const std::string& data) {
  if (path_.empty()) return {};
  std::string said;
  name_out([&] { make_directories(path_); });
  lock();
  name_out([&] {
    if (!resumed_) require_empty();  // another run may have begun and ended here since the constructor
    for (const std::string& name : list_folder(path_)) {
      if (is_leftover(name)) remove_file(path_ / name);
    }
    write_file(path_ / config_name, config);
    if (!data.empty()) write_file(path_ / data_list_name, data);
    if (resumed_ && (steps == 0 || begins_again_)) said = set_metrics_aside();
    if (resumed_) keep_first(steps);
    metrics_ = std::make_unique<AppendFile>(path_ / metrics_name);
  });
  return said;
}

std::string RunFolder::read_metrics() const {
  if (!is_there(path_ / metrics_name)) return {};
  return read_file(path_ / metrics_name, read_limits::metrics);
}

void RunFolder::keep_first(std::int64_t steps) const {
  if (is_there(path_ / metrics_name)) write_file(path_ / metrics_name, first_steps(read_metrics(), steps));
}

/// The metrics are all that remains of a run without a save, so they are kept.
std::string RunFolder::set_metrics_aside() const {
  const std::string said =
      fmt::format("begins anew: {} holds no checkpoint of the run that began there", path_.string());
  std::string lines = read_metrics();
  lines.resize(lines.rfind('\n') + 1);  // npos + 1 is 0; drops an incomplete last line
  if (lines.empty()) return said;
  lines.pop_back();
  AppendFile(path_ / metrics_before_name).line(lines);
  return fmt::format("{}; its metrics are kept in {}", said, (path_ / metrics_before_name).string());
}

void RunFolder::rewind(std::int64_t steps) {
  if (!metrics_) return;
  metrics_.reset();
  name_out([&] {
    keep_first(steps);
    metrics_ = std::make_unique<AppendFile>(path_ / metrics_name);
  });
}

/// If the file was removed or replaced, warns and continues in a new one, or in that which has its name now.
void RunFolder::follow_file() {
  if (metrics_->still_there()) return;
  const std::string path = (path_ / metrics_name).string();
  try {
    auto another = std::make_unique<AppendFile>(path);
    warn(fmt::format("{} was removed or replaced: its lines are lost; training goes on, with a new file", path));
    metrics_ = std::move(another);
  } catch (const Error& error) {
    if (!gone_) warn(fmt::format("{} was removed: {}; training goes on without that file", path, error.reason()));
    gone_ = true;
  }
}

void RunFolder::log(const StepRecord& record) {
  if (!metrics_) return;
  follow_file();
  const std::string lines = waiting_ + to_json_line(record);
  try {
    metrics_->line(lines);
    waiting_.clear();
  } catch (const Error& error) {
    if (waiting_.empty()) warn(fmt::format("{}; training goes on, and the lines wait for room", error.reason()));
    waiting_ = lines + "\n";
  }
}

RunFolder::~RunFolder() {
  if (waiting_.empty()) return;
  warn(fmt::format("{} lines of {} were never written", std::count(waiting_.begin(), waiting_.end(), '\n'),
                   (path_ / metrics_name).string()));
}

}  // namespace trireme
