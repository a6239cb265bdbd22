// ProgramRunner: runs the programs of the build in a folder of its own, and reads their results.
// Read next: check/explore/compare.h.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "check/explore/case.h"
#include "check/explore/process.h"

namespace trireme::explore {

/// The results of a training run.
struct TrainingResult {
  std::filesystem::path out;
  int code = 0;
  std::string output;
  std::map<std::int64_t, nlohmann::json> records;  ///< metrics.jsonl by step, without times, rates and memory
  std::map<std::int64_t, std::string> samples;     ///< text by step

  std::string last_line() const;  ///< of the output
};

class ProgramRunner {
 public:
  /// `programs`: the folder with train_gpt and the others. `folder` is created, or emptied. A program that runs longer
  /// than `seconds` counts as hung.
  ProgramRunner(std::filesystem::path programs, std::filesystem::path folder, double seconds);
  ~ProgramRunner();
  ProgramRunner(const ProgramRunner&) = delete;
  ProgramRunner& operator=(const ProgramRunner&) = delete;

  /// Runs `parity`: with --ranks=mpi as processes, with --device=cuda on the emulated GPU.
  ProcessResult parity(const Arguments& flags);
  /// Runs `train_gpt` in the same way. Its --out is the folder `name`, which is emptied before. --data=text-K selects a
  /// synthetic text, and --fault=TEXT sets TRIREME_FAULT. Unless the flags say otherwise, every step is logged and a
  /// rank has one thread.
  TrainingResult train(const std::string& name, const Arguments& flags);

  std::filesystem::path folder(const std::string& name) const { return folder_ / name; }
  /// The commands of this case so far. The first ones are those that were compared.
  const std::vector<std::string>& commands() const { return commands_; }
  void begin_case() { commands_.clear(); }

 private:
  std::vector<std::string> command(const std::string& program, const Arguments& flags) const;

  std::filesystem::path programs_, folder_;
  double seconds_;
  std::vector<std::string> commands_;
};

}  // namespace trireme::explore
