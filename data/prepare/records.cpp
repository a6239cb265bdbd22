#include "data/prepare/records.h"

#include <algorithm>

#include "core/error.h"
#include "data/json.h"
#include "data/prepare/csv.h"
#include "data/utf8.h"

namespace trireme {

namespace {

/// "id, url, title": the first few names.
std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t most = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), most); ++i) text += (i == 0 ? "" : ", ") + in_quotes(names[i]);
  return names.size() > most ? text + ", ..." : names.empty() ? "none" : text;
}

}  // namespace

std::string text_of_json_line(std::string_view json, std::string_view field, std::string_view file, std::int64_t line) {
  const std::string place = fmt::format("{} line {}", file, line);
  std::string text;
  bool found = false;
  const nlohmann::json rest = parse_json(
      json, place,
      [&](const JsonPlace& at, nlohmann::json& value) {
        if (at.in_array || at.key != field) return false;
        if (found)
          fail(ExitCode::data, "json", "{} byte {}: the key {} occurs twice; expected it once", place, at.at,
               in_quotes(field));
        if (!value.is_string())
          fail(ExitCode::data, "json",
               "{} byte {}: {} is {}; expected a text; correct the line, or change --text-field", place, at.at,
               in_quotes(field), shown(value));
        text = std::move(value.get_ref<std::string&>());
        found = true;
        return true;
      },
      0, 1);
  if (found) return text;
  std::vector<std::string> keys;
  if (rest.is_object())
    for (const auto& [key, value] : rest.items()) keys.push_back(key);
  else
    fail(ExitCode::data, "json", "{}: {} is not an object; expected one with the key {}", place, shown(rest),
         in_quotes(field));
  fail(ExitCode::data, "json", "{}: there is no key {}; found {}; change --text-field", place, in_quotes(field),
       listed(keys));
}

CsvColumn csv_column(const std::vector<std::string>& names, std::string_view field, std::string_view file) {
  const auto found = std::find(names.begin(), names.end(), field);
  if (found == names.end())
    fail(ExitCode::data, "csv", "{} line 1: there is no column {}; found {}; change --text-field", file,
         in_quotes(field), listed(names));
  if (std::find(found + 1, names.end(), field) != names.end())
    fail(ExitCode::data, "csv", "{} line 1: the column {} occurs twice; expected it once; rename one", file,
         in_quotes(field));
  return {static_cast<std::size_t>(found - names.begin()), names.size()};
}

void for_each_document(const TextBlock& block, std::string_view field,
                       const std::function<void(std::string_view, std::int64_t)>& f) {
  std::int64_t line = block.begin.line;
  const std::string_view bytes = block.bytes;
  if (block.format == TextFormat::text) return f(bytes, line);
  if (block.format == TextFormat::jsonl) {
    for (std::size_t at = 0; at < bytes.size(); ++line) {
      const std::size_t end = std::min(bytes.find('\n', at), bytes.size());
      const std::string_view record = bytes.substr(at, end - at);
      if (record.find_first_not_of(" \t\r") != std::string_view::npos)
        f(text_of_json_line(record, field, block.file, line), line);
      at = end + 1;
    }
    return;
  }
  CsvReader reader(bytes, block.format == TextFormat::tsv ? '\t' : ',', block.file, line);
  std::vector<std::string> fields;
  while (reader.next(fields)) {
    const bool blank = fields.size() == 1 && fields.front().empty() && block.column.columns > 1;
    if (blank) continue;
    if (fields.size() != block.column.columns)
      fail(ExitCode::data, "csv", "{} line {}: {} fields; expected {}, as many as names in line 1; correct the line",
           block.file, reader.line(), fields.size(), block.column.columns);
    f(fields[block.column.column], reader.line());
  }
}

}  // namespace trireme
