#include "train/runs/data_list.h"

#include <fmt/format.h>

#include <map>

#include "core/io.h"
#include "data/utf8.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view title = "# the files of --data: hash, bytes, name\n";  // data/file_kind.cpp knows it

/// The part of `text` before `end`, which is removed from it with `end`.
std::string_view take_until(std::string_view& text, char end) {
  const std::size_t size = std::min(text.find(end), text.size());
  const std::string_view part = text.substr(0, size);
  text.remove_prefix(std::min(size + 1, text.size()));
  return part;
}

struct Line {
  std::string_view hash, bytes, name;
};

std::vector<Line> lines_of(std::string_view list) {
  std::vector<Line> lines;
  if (list.starts_with(title)) list.remove_prefix(title.size());
  while (!list.empty()) {
    std::string_view line = take_until(list, '\n');
    const std::string_view hash = take_until(line, ' '), bytes = take_until(line, ' ');
    lines.push_back({hash, bytes, line});
  }
  return lines;
}

std::map<std::string_view, Line> by_name(const std::vector<Line>& lines) {
  std::map<std::string_view, Line> result;
  for (const Line& line : lines) result.emplace(line.name, line);
  return result;
}

}  // namespace

std::string data_list(const std::vector<SourceFile>& files) {
  std::string list(title);
  for (const SourceFile& file : files)
    list += fmt::format("{:016x} {} {}\n", file.hash, file.bytes, safe_line(file.name));
  return list;
}

std::string first_changed_file(std::string_view before, std::string_view now) {
  const std::vector<Line> were = lines_of(before), are = lines_of(now);
  const auto then = by_name(were), here = by_name(are);
  for (const Line& line : are) {
    const auto found = then.find(line.name);
    if (found == then.end()) return fmt::format("{} is new ({} bytes)", safe_line(line.name), line.bytes);
    const Line& was = found->second;
    if (was.bytes != line.bytes)
      return fmt::format("{} had {} bytes and now has {}", safe_line(line.name), safe_line(was.bytes), line.bytes);
    if (was.hash != line.hash) return fmt::format("the content of {} has changed", safe_line(line.name));
  }
  for (const Line& line : were)
    if (!here.contains(line.name)) return fmt::format("{} is missing", safe_line(line.name));
  return {};
}

std::string difference_to_saved(const fs::path& checkpoint, std::string_view now) {
  const fs::path folder = checkpoint.has_filename() ? checkpoint : checkpoint.parent_path();
  const fs::path list = folder.parent_path().parent_path() / data_list_name;
  if (now.empty() || !is_there(list)) return {};
  return first_changed_file(read_file(list), now);
}

}  // namespace trireme
