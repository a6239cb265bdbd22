// The folder of --out: config.json, metrics.jsonl, and what else a run leaves there. Only one rank of a job has it.
// Read next: core/io.h (the files), train/metrics.h (the lines).
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "core/io.h"
#include "train/metrics.h"

namespace trireme {

class RunFolder {
 public:
  /// `out` may be empty: then nothing is ever written. `resume` is the value of --resume. Refuses an `out` that is a
  /// file or already holds a run, unless it is the one resumed from (ExitCode::usage); creates nothing yet, so that a
  /// run that is refused later leaves no trace.
  RunFolder(std::filesystem::path out, const std::string& resume);

  /// Creates the folder, writes config.json, opens metrics.jsonl. Throws ExitCode::io naming --out.
  void open(const std::string& config);
  /// Appends a line to metrics.jsonl.
  void log(const StepRecord& record);

  bool exists() const { return metrics_ != nullptr; }  ///< there is an `out`, and it is open
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::unique_ptr<AppendFile> metrics_;
};

}  // namespace trireme
