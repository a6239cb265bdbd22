#include "data/json_lines.h"

#include <algorithm>

#include "data/json.h"

namespace trireme {

std::vector<NumberedLine> numbered_lines(std::string_view text) {
  std::vector<NumberedLine> lines;
  std::int64_t number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t") != std::string_view::npos) lines.push_back({number, line});
  }
  return lines;
}

void for_each_json_line(std::string_view text, const std::filesystem::path& path, std::string_view where,
                        const std::function<void(const nlohmann::json& value, std::int64_t line)>& each) {
  for (const NumberedLine& line : numbered_lines(text)) {
    nlohmann::json value;
    try {
      value = parse_json(line.text, "this line,");
    } catch (const Error& error) {
      if (error.code() != ExitCode::data) throw;
      fail_line("json", path, line.number, "{}", error.reason());
    }
    try {
      each(value, line.number);
    } catch (const Error& error) {
      if (error.code() != ExitCode::data) throw;
      fail_line(where, path, line.number, "{}", error.reason());
    }
  }
}

std::string json_text(const nlohmann::json& object, const char* key, std::string_view where) {
  if (!object.is_object() || !object.contains(key) || !object[key].is_string())
    fail(ExitCode::data, where, "'{}' is {}; expected a text", key,
         object.is_object() && object.contains(key) ? shown(object[key]) : "missing");
  return object[key].get<std::string>();
}

std::vector<std::string> json_texts(const nlohmann::json& object, const char* key, std::string_view where) {
  const bool list = object.is_object() && object.contains(key) && object[key].is_array();
  if (!list || !std::all_of(object[key].begin(), object[key].end(), [](const auto& x) { return x.is_string(); }))
    fail(ExitCode::data, where, "'{}' is {}; expected a list of texts", key,
         object.is_object() && object.contains(key) ? shown(object[key]) : "missing");
  return object[key].get<std::vector<std::string>>();
}

std::int64_t json_number(const nlohmann::json& object, const char* key, std::int64_t most, std::string_view where) {
  const bool held = object.is_object() && object.contains(key);
  if (!held || !object[key].is_number_integer() || object[key] < 0 || object[key] > most)
    fail(ExitCode::data, where, "'{}' is {}; expected a whole number from 0 to {}", key,
         held ? shown(object[key]) : "missing", most);
  return object[key].get<std::int64_t>();
}

}  // namespace trireme
