// Files with one JSON value on each line (JSONL): prompts, questions, dialogues.
// Read next: data/json.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace trireme {

/// A line of a text, without its end.
struct NumberedLine {
  std::int64_t number;  ///< from 1
  std::string_view text;
};

/// The lines of a text that are not blank.
std::vector<NumberedLine> numbered_lines(std::string_view text);

/// "FILE line 3", for messages.
inline std::string line_of(const std::filesystem::path& path, std::int64_t line) {
  return fmt::format("{} line {}", path.string(), line);
}

/// Throws ExitCode::data, naming the file and the line.
template <class... Args>
[[noreturn]] void fail_line(std::string_view where, const std::filesystem::path& path, std::int64_t line,
                            fmt::format_string<Args...> what, Args&&... args) {
  fail(ExitCode::data, where, "{}: {}", line_of(path, line), fmt::format(what, std::forward<Args>(args)...));
}

/// Calls `each` with the value of every line that is not blank. An Error of the parser or of `each` with
/// ExitCode::data gets the file and the line.
void for_each_json_line(std::string_view text, const std::filesystem::path& path, std::string_view where,
                        const std::function<void(const nlohmann::json& value, std::int64_t line)>& each);

// Fields of an object, for messages without file and line, which for_each_json_line() adds.

/// The text under `key`. Throws ExitCode::data unless there is one.
std::string json_text(const nlohmann::json& object, const char* key, std::string_view where);
/// The list of texts under `key`.
std::vector<std::string> json_texts(const nlohmann::json& object, const char* key, std::string_view where);
/// The whole number under `key`, from 0 to `most`.
std::int64_t json_number(const nlohmann::json& object, const char* key, std::int64_t most, std::string_view where);

}  // namespace trireme
