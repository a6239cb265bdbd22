// The C library knows how wide each character is (wcwidth), in a locale of UTF-8.
#include "train/program/text_width.h"

#include <algorithm>
#include <clocale>
#include <cwchar>

#include "data/utf8.h"

namespace trireme {
namespace {

/// Gives the calling thread a locale of UTF-8. Where the system has none, every character counts as one column.
class Utf8Locale {
 public:
  Utf8Locale() {
    static const locale_t utf8 = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
    if (utf8 != nullptr) before_ = ::uselocale(utf8);
  }
  ~Utf8Locale() {
    if (before_ != nullptr) ::uselocale(before_);
  }
  Utf8Locale(const Utf8Locale&) = delete;
  Utf8Locale& operator=(const Utf8Locale&) = delete;

  int width(char32_t character) const {
    return before_ == nullptr ? 1 : std::max(0, ::wcwidth(static_cast<wchar_t>(character)));
  }

 private:
  locale_t before_ = nullptr;
};

/// Calls `each(bytes, columns)` for the characters of the line, until it returns false. A byte that is not UTF-8 counts
/// as one column.
template <class Each>
void for_characters(std::string_view line, const Each& each) {
  const Utf8Locale locale;
  for (std::size_t at = 0; at < line.size();) {
    const auto character = decode_utf8(line, at);
    const std::size_t bytes = character ? character->bytes : 1;
    if (!each(bytes, character ? locale.width(character->value) : 1)) return;
    at += bytes;
  }
}

/// Appends one line of text, broken into lines of at most `columns`.
void wrap_line(std::string_view line, int columns, std::vector<std::string>& lines) {
  while (columns_of(line) > columns) {
    std::size_t most = cut_to_columns(line, columns).size();
    if (most == 0) {  // one character is wider than the columns
      const auto character = decode_utf8(line, 0);
      most = character ? character->bytes : 1;
      if (most == line.size()) break;
    }
    const std::size_t space = line.rfind(' ', most);
    const std::size_t end = space == std::string_view::npos || space == 0 ? most : space;
    lines.emplace_back(line.substr(0, end));
    line.remove_prefix(end);
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  }
  lines.emplace_back(line);
}

}  // namespace

int columns_of(std::string_view text) {
  int columns = 0;
  for_characters(text, [&](std::size_t, int width) {
    columns += width;
    return true;
  });
  return columns;
}

std::string_view cut_to_columns(std::string_view line, int columns) {
  std::size_t size = 0;
  for_characters(line, [&](std::size_t bytes, int width) {
    columns -= width;
    if (columns < 0) return false;
    size += bytes;
    return true;
  });
  return line.substr(0, size);
}

std::string shortened_to_columns(std::string_view line, int columns) {
  constexpr int dots = 3;
  if (columns_of(line) <= columns) return std::string(line);
  return columns <= dots ? std::string(cut_to_columns(line, columns))
                         : std::string(cut_to_columns(line, columns - dots)) + "...";
}

std::string padded_to_columns(std::string_view line, int columns) {
  return std::string(line) + std::string(static_cast<std::size_t>(std::max(0, columns - columns_of(line))), ' ');
}

std::vector<std::string> wrapped_lines(std::string_view text, int columns) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    wrap_line(text.substr(begin, end - begin), std::max(columns, 1), lines);
    begin = end + 1;
  }
  return lines;
}

std::string wrapped_text(std::string_view text, int columns) {
  const std::string indent(columns > 20 ? 2 : 0, ' ');
  std::string result;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    const std::string first = wrapped_lines(line, columns).front();
    result += (begin == 0 ? "" : "\n") + first;
    line.remove_prefix(first.size());
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    if (!line.empty())
      for (const std::string& rest : wrapped_lines(line, columns - static_cast<int>(indent.size())))
        result.append("\n").append(indent).append(rest);
    begin = end + 1;
  }
  return result;
}

}  // namespace trireme
