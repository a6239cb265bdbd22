// A scanner over the characters of a C++ file; source.h says what it is for.
#include "tests/layering/source.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <sstream>

namespace layering {

namespace fs = std::filesystem;

namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// Blanks comments and literals of one file, keeping its newlines.
class Blanker {
 public:
  explicit Blanker(std::string_view text) : text_(text) {}

  std::string run() {
    while (at_ < text_.size()) {
      if (starts("//")) {
        blank_until(text_.find('\n', at_));
      } else if (starts("/*")) {
        blank_past("*/", at_ + 2);
      } else if (starts("R\"") && !(at_ > 0 && is_word(text_[at_ - 1]))) {
        const std::size_t open = text_.find('(', at_);
        if (open == std::string_view::npos) return code_;
        blank_past(")" + std::string(text_.substr(at_ + 2, open - at_ - 2)) + "\"", open);
      } else if (text_[at_] == '"') {
        on_include_line() ? keep_line() : blank_literal('"');
      } else if (text_[at_] == '\'' && !is_digit_separator()) {
        blank_literal('\'');
      } else {
        code_ += text_[at_++];
      }
    }
    return code_;
  }

 private:
  bool starts(std::string_view what) const { return text_.substr(at_, what.size()) == what; }

  void blank_until(std::size_t end) {
    for (end = std::min(end, text_.size()); at_ < end; ++at_) code_ += text_[at_] == '\n' ? '\n' : ' ';
  }
  void blank_past(const std::string& mark, std::size_t from) {
    const std::size_t end = text_.find(mark, from);
    blank_until(end == std::string_view::npos ? end : end + mark.size());
  }
  void blank_literal(char quote) {
    std::size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote && text_[end] != '\n') end += text_[end] == '\\' ? 2 : 1;
    blank_until(end + 1);
  }
  void keep_line() {
    const std::size_t closing = std::min(text_.find('"', at_ + 1), text_.size() - 1);
    while (at_ <= closing) code_ += text_[at_++];
  }
  bool on_include_line() const {
    const std::size_t newline = code_.rfind('\n');  // npos + 1 = 0 on the first line
    return !included_file(code_.substr(newline + 1) + "\"x\"").empty();
  }
  /// The ' of 1'000'000 or 0xff'ff, as opposed to the one of 'a' or u8'a'.
  bool is_digit_separator() const {
    std::size_t start = at_;
    while (start > 0 && (is_word(text_[start - 1]) || text_[start - 1] == '\'')) --start;
    return start < at_ && std::isdigit(static_cast<unsigned char>(text_[start])) != 0;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::string code_;
};

}  // namespace

std::vector<Source> read_sources(const fs::path& root, const std::vector<std::string>& folders) {
  static const std::vector<std::string> extensions = {".h", ".hpp", ".cpp", ".cu", ".cuh"};
  std::vector<Source> sources;
  for (const std::string& folder : folders) {
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string extension = entry.path().extension().string();
      if (std::find(extensions.begin(), extensions.end(), extension) == extensions.end()) continue;
      std::ostringstream text;
      text << std::ifstream(entry.path()).rdbuf();
      sources.push_back({entry.path().lexically_relative(root).generic_string(), text.str()});
    }
  }
  std::sort(sources.begin(), sources.end(), [](const Source& a, const Source& b) { return a.path < b.path; });
  return sources;
}

std::vector<Line> code_lines(std::string_view text) {
  std::vector<Line> lines;
  std::istringstream stream(Blanker(text).run());
  std::string line;
  while (std::getline(stream, line)) lines.push_back({static_cast<int>(lines.size()) + 1, line});
  return lines;
}

std::string included_file(std::string_view code) {
  const auto skip_spaces = [&] { code.remove_prefix(std::min(code.find_first_not_of(" \t"), code.size())); };
  skip_spaces();
  if (!code.starts_with('#')) return {};
  code.remove_prefix(1);
  skip_spaces();
  if (!code.starts_with("include")) return {};
  code.remove_prefix(7);
  skip_spaces();
  if (code.empty() || (code[0] != '"' && code[0] != '<')) return {};
  const std::size_t end = code.find(code[0] == '<' ? '>' : '"', 1);
  return end == std::string_view::npos ? std::string() : std::string(code.substr(1, end - 1));
}

std::vector<std::string> identifiers(std::string_view code) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at < code.size();) {
    const std::size_t start = at;
    while (at < code.size() && is_word(code[at])) ++at;
    if (at == start) {
      ++at;
    } else if (std::isdigit(static_cast<unsigned char>(code[start])) == 0) {
      words.emplace_back(code.substr(start, at - start));
    }
  }
  return words;
}

}  // namespace layering
