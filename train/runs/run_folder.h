// The folder of --out: config.json, metrics.jsonl, and what else a run leaves there. Only one rank of a job has it.
// Read next: core/io.h (the files), train/program/metrics.h (the lines).
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "core/io.h"
#include "train/program/metrics.h"

namespace trireme {

class RunFolder {
 public:
  static constexpr const char* config_name = "config.json";  ///< the run's options, as --config takes them
  static constexpr const char* metrics_name = "metrics.jsonl";
  /// The lines of runs in this folder that ended before they had saved anything, after which another began.
  static constexpr const char* metrics_before_name = "metrics_before.jsonl";
  /// Of the supervisor, also about starts that got nowhere: in a folder with nothing else a run may begin.
  static constexpr const char* incidents_name = "incidents.jsonl";

  /// `out` may be empty: then nothing is ever written. `resume` is the value of --resume. Refuses an `out` that is a
  /// file or holds anything, unless it is the run resumed from, and from its newest checkpoint, or one that began from
  /// the same other run's checkpoint and has saved nothing (ExitCode::usage); creates nothing yet, so that a run that
  /// is refused later leaves no trace.
  RunFolder(std::filesystem::path out, const std::string& resume);
  ~RunFolder();  ///< says so when lines of metrics.jsonl could not be written
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  /// Locks the folder if there is one already, before anything in it is read. Throws ExitCode::locked, saying who has
  /// it, when another run is writing there.
  void lock();
  /// Creates the folder, locks it, writes config.json, opens metrics.jsonl, in which only the first `steps` steps stay:
  /// those after the checkpoint that the run goes on from are made again. Where a run began that has saved nothing, its
  /// lines go to metrics_before.jsonl, and what is returned says so; otherwise that is empty. Throws ExitCode::io
  /// naming --out, and as lock().
  std::string open(const std::string& config, std::int64_t steps = 0);
  /// The run has gone back to this step: of metrics.jsonl only the lines up to it stay.
  void rewind(std::int64_t steps);
  /// Appends a line to metrics.jsonl. Where that fails it says so, once, training goes on, and the line is written
  /// with a later one when there is room again.
  void log(const StepRecord& record);

  bool exists() const { return metrics_ != nullptr; }  ///< there is an `out`, and it is open
  const std::filesystem::path& path() const { return path_; }

 private:
  void require_newest(const std::filesystem::path& resume) const;
  void require_empty() const;
  void keep_first(std::int64_t steps) const;  // lines of metrics.jsonl
  std::string read_metrics() const;
  std::string set_metrics_aside() const;
  /// Runs f; its errors name --out.
  void name_out(const std::function<void()>& f) const;

  std::filesystem::path path_;
  bool resumed_ = false;
  bool begins_again_ = false;  // from another run's checkpoint
  std::unique_ptr<FileLock> lock_;
  std::unique_ptr<AppendFile> metrics_;
  std::string waiting_;  // lines that could not be written yet
};

}  // namespace trireme
