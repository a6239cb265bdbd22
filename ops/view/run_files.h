// Reads what a run has left in its folder: config.json and metrics.jsonl. Read next: ops/view/page.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::run_view {

/// A line of metrics.jsonl.
struct MetricsRecord {
  std::int64_t step = 0;
  bool has_loss = false;                 ///< also if it was not finite
  std::map<std::string, double> values;  ///< numbers only
};

struct RunFiles {
  std::string name;                                          ///< of the folder
  std::vector<std::pair<std::string, std::string>> options;  ///< of config.json, as texts; empty: there is none
  std::string configuration;                                 ///< the hash of config.json, as a trace has it
  std::vector<MetricsRecord> metrics;                        ///< by step; empty: none yet

  /// The value of an option; empty: there is none.
  std::string option(std::string_view key) const;
};

/// Throws ExitCode::usage if `folder` is not the folder of a run, ExitCode::data if a file in it is not what it should be.
RunFiles read_run(const std::filesystem::path& folder);

/// `lines`: the content of the metrics.jsonl `file`; a last line without an end is still being written, and left out.
std::vector<MetricsRecord> parse_metrics(std::string_view lines, const std::filesystem::path& file);

/// Where the run's trace is, if --profile has written it and it is still there. The path in config.json is relative to
/// where the run began: tried from here, and from the folders above the run's.
std::optional<std::filesystem::path> find_trace(const std::filesystem::path& folder, const RunFiles& run);

}  // namespace trireme::run_view
