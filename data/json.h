// Strict JSON for files that come from outside: what is accepted is exactly standard JSON, bounded in depth and number
// of values, without duplicate keys, and an error names the file and the byte offset.
// Includes nlohmann/json.hpp, which is slow to compile: include this from .cpp files only.
// Read next: data/tokenizer_files.cpp, its main user.
#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

namespace trireme {

/// Parses `text`, the content of `path`. Throws ExitCode::data for malformed JSON, nesting deeper than 64, a duplicate
/// key, or more than `most_values` (which bounds the memory a file can claim).
nlohmann::json parse_json(std::string_view text, const std::filesystem::path& path,
                          std::size_t most_values = 2'000'000);

}  // namespace trireme
