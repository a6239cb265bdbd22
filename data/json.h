// Strict JSON for files that come from outside. It accepts exactly standard JSON, bounded in depth and memory, without
// duplicate keys; an error names the file and the byte offset.
// Includes nlohmann/json.hpp, which is slow to compile: include this from .cpp files only.
// Read next: data/tokenizer_files.cpp, its main user; docs/untrusted_input.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace trireme {

inline constexpr int json_most_depth = 64;
/// Limits on the estimated memory of the values kept from one text, and on the length of a single value. The parser
/// needs more than twice that memory: at most 128 MiB in all, besides the text. The largest published tokenizer known
/// has 28,682 added tokens, which take 25 MiB.
inline constexpr std::size_t json_most_bytes = std::size_t{48} << 20, json_longest_value = std::size_t{16} << 20;

/// The place in the text of a value that is offered to a JsonTake.
struct JsonPlace {
  std::string_view parent;       ///< the key of its container, if that is a member of an object
  std::string_view grandparent;  ///< the key of that object, at depth 3
  std::string_view key;          ///< its own key; empty in an array
  std::size_t index;             ///< the number of values before it in its container
  std::size_t at;                ///< the byte at which it, or its key, begins
  int depth;                     ///< 1: in the outermost container; 2: in one of those; and so on
  bool in_array;                 ///< its container is an array: it has no key
};

/// Called with each complete value of depth 1 to `deepest` of parse_json(); returns whether it has taken the value. A
/// value that is taken is not kept, so a file may hold any number of them. The function must itself find duplicates
/// among the keys it takes.
using JsonTake = std::function<bool(const JsonPlace& place, nlohmann::json& value)>;

/// Parses `text`, the content of `path`, whose first byte is number `first` in that file. Throws ExitCode::data, with
/// the byte, for what is not standard JSON (NaN, comments, text that is not UTF-8, anything after the value), nesting
/// deeper than json_most_depth, a duplicate key, and values that take more than json_most_bytes.
nlohmann::json parse_json(std::string_view text, const std::filesystem::path& path, const JsonTake& take = {},
                          std::size_t first = 0, int deepest = 2);

/// The count or size stored under `key`. Throws ExitCode::data, naming `path`, unless it is a whole number from 0 to
/// 2^56: sums of many of them fit.
std::int64_t json_count(const nlohmann::json& json, const char* key, const std::filesystem::path& path);

/// A value from a file for a message, cut after 80 bytes.
std::string shown(const nlohmann::json& value);

}  // namespace trireme
