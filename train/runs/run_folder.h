// The folder of --out: config.json, metrics.jsonl and the other files of a run. Only the first rank writes to it.
// Read next: core/io.h (the files), train/events/metrics.h (the lines).
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "core/io.h"
#include "train/events/metrics.h"

namespace trireme {

/// The output folder of a run, locked while it lives.
class RunFolder {
 public:
  static constexpr const char* config_name = "config.json";  ///< the run's options, as --config takes them
  static constexpr const char* metrics_name = "metrics.jsonl";
  /// Metrics of earlier runs in this folder that ended before they saved anything; another run has begun since.
  static constexpr const char* metrics_before_name = "metrics_before.jsonl";
  /// Written by the supervisor, also for failed starts. A run may begin in a folder that has only this file.
  static constexpr const char* incidents_name = "incidents.jsonl";

  /// `out` may be empty: then nothing is ever written. `resume` is the value of --resume. Throws ExitCode::usage if
  /// `out` is a file, or a folder that is not empty. Two kinds of folders are allowed: that of the run to resume, if
  /// `resume` is its newest checkpoint; and that of a run that began from the same other run's checkpoint and has saved
  /// nothing. Creates nothing yet, so that a run that is refused later leaves no trace.
  RunFolder(std::filesystem::path out, const std::string& resume);
  ~RunFolder();  ///< warns if lines of metrics.jsonl could not be written
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  /// With --resume auto: whether the newest checkpoint already has this many steps.
  bool has_made(std::int64_t steps) const;
  /// Another folder, new and empty, that the program has chosen. Gives up the lock of the one before.
  void move_to(const std::filesystem::path& created);
  /// Locks the folder if it exists, before anything in it is read. Throws ExitCode::locked, with the owner, if another
  /// run is writing there. Warns if its file system has no locks.
  void lock();
  /// Creates the folder, locks it, writes config.json and data.txt, and opens metrics.jsonl. `data`: data_list()
  /// (train/runs/data_list.h); empty: not written. Only the first `steps` steps stay in
  /// metrics.jsonl, because later steps are made again. If the run in the folder has saved nothing, its lines move to
  /// metrics_before.jsonl and a message about that is returned; otherwise the result is empty. Throws ExitCode::io with
  /// --out in the text, and the errors of lock().
  std::string open(const std::string& config, std::int64_t steps = 0, const std::string& data = "");
  /// After a rollback to step `steps`: keeps only the lines of metrics.jsonl up to it.
  void rewind(std::int64_t steps);
  /// Appends a line to metrics.jsonl. If that fails, prints one warning and continues; the line is written with a later
  /// one when there is room again. If the file was removed or replaced since the last line, warns, and begins a new
  /// one.
  void log(const StepRecord& record);

  bool exists() const { return metrics_ != nullptr; }  ///< there is an `out`, and it is open
  const std::filesystem::path& path() const { return path_; }

 private:
  void require_newest(const std::filesystem::path& resume) const;
  void require_empty() const;
  void require_possible() const;
  void keep_first(std::int64_t steps) const;  // steps in metrics.jsonl
  std::string read_metrics() const;
  std::string set_metrics_aside() const;
  void follow_file();
  /// Runs f, and adds --out to its errors.
  void name_out(const std::function<void()>& f) const;

  std::filesystem::path path_;
  bool resumed_ = false;
  bool automatic_ = false;     // --resume auto
  bool begins_again_ = false;  // from another run's checkpoint
  std::unique_ptr<FileLock> lock_;
  std::unique_ptr<AppendFile> metrics_;
  std::string waiting_;  // lines that are not written yet
  bool gone_ = false;    // metrics.jsonl was removed, and a new one could not be made: said once
};

}  // namespace trireme
