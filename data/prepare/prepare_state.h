// How far a job of prepare_data has come: progress.json in the folder where it works. A start that finds it goes on.
// Read next: data/prepare/prepare.h.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "data/prepare/pipeline.h"
#include "data/prepare/text_input.h"
#include "data/token_shard.h"

namespace trireme {

/// Documents so far.
struct PrepareCounts {
  std::int64_t documents = 0;   ///< kept
  std::int64_t bytes = 0;       ///< of their text
  std::int64_t duplicates = 0;  ///< left out
  FilterCounts left_out;        ///< by filters
};

/// What progress.json holds.
struct PrepareState {
  std::map<std::string, std::string> job;  ///< what decides about the result, by flag: a later start must have the same
  InputPosition input;
  ShardPosition shards;
  std::int64_t seen = 0;  ///< hashes of documents that are stored
  PrepareCounts counts;
  bool complete = false;  ///< the result is in the folder, which only needs its name
};

std::string to_text(const PrepareState& state);
/// Throws ExitCode::data, naming `path`, for what to_text() does not write.
PrepareState parse_prepare_state(std::string_view text, const std::filesystem::path& path);

}  // namespace trireme
