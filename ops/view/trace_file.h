// Reads a trace of --profile (train/report/profiling.h writes it). The file may come from anywhere: sizes, numbers and
// names are checked. Read next: ops/view/steps.h, which makes steps of it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ops/view/profile.h"

namespace trireme::run_view {

/// An event as it is in the file.
struct TraceEvent : Span {
  std::string category, detail;
  int lane = 0;  ///< 0: the rank's own thread
  std::optional<ProfileTransfer> transfer;
};

struct TraceFile {
  Profile facts;  ///< without steps
  struct Rank {
    std::vector<TraceEvent> events;  ///< by begin; an event comes before those inside it
    std::vector<MemorySample> memory;
  };
  std::vector<Rank> ranks;
};

/// Throws ExitCode::usage if there is no such file, ExitCode::data if it is no trace or an older version wrote it.
TraceFile read_trace(const std::filesystem::path& path);
/// `text`: the content of `path`.
TraceFile parse_trace(std::string_view text, const std::filesystem::path& path);

}  // namespace trireme::run_view
