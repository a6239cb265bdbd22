// A terminal as far as programs here use one: it shows what a person would see. Every character is one column wide.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "data/utf8.h"

namespace trireme::testing {

class VirtualTerminal {
 public:
  explicit VirtualTerminal(int columns) : columns_(static_cast<std::size_t>(columns)) {}

  /// Lines that are too long for the new width are broken into rows again, as most terminals do.
  void resize(int columns) { columns_ = static_cast<std::size_t>(columns); }

  /// Takes the commands of Screen; any other one is shown as the text "<?>".
  void write(std::string_view bytes) {
    for (std::size_t at = 0; at < bytes.size();) {
      if (bytes[at] == '\r') {
        at_ = row_begin(), full_ = false, ++at;
      } else if (bytes[at] == '\n') {
        if (++line_ == lines_.size()) lines_.emplace_back();
        at_ = 0, full_ = false, ++at;
      } else if (bytes.substr(at).starts_with("\x1b[")) {
        const std::size_t end = bytes.find_first_not_of("0123456789;", at + 2);
        command(bytes.substr(at + 2, end - at - 2), end < bytes.size() ? bytes[end] : '?');
        at = std::min(end, bytes.size() - 1) + 1;
      } else {
        const auto character = decode_utf8(bytes, at);
        put(character ? character->value : U'?');
        at += character ? character->bytes : 1;
      }
    }
  }

  /// The text of each line, from the top of its history; a line that the terminal has broken into rows is one.
  std::vector<std::string> lines() const {
    std::vector<std::string> texts;
    for (const std::u32string& line : lines_) {
      std::string text;
      for (const char32_t character : line) append_utf8(text, character);
      texts.push_back(text);
    }
    return texts;
  }
  std::string text() const {
    std::string all;
    for (const std::string& line : lines()) all += line + "\n";
    return all;
  }

 private:
  /// Where the row of the cursor begins in its line. After the last column, the cursor stays in its row.
  std::size_t row_begin() const { return (full_ ? at_ - 1 : at_) / columns_ * columns_; }

  void put(char32_t character) {
    std::u32string& line = lines_[line_];
    if (line.size() <= at_) line.resize(at_ + 1, U' ');
    line[at_++] = character;
    full_ = true;
  }

  void command(std::string_view numbers, char letter) {
    if (letter == 'm') return;  // colour
    if (letter == 'A' && numbers.empty()) return up();
    if (letter == 'J' && numbers.empty()) {
      lines_.resize(line_ + 1);
      lines_[line_].resize(std::min(lines_[line_].size(), at_));
      return;
    }
    for (const char32_t character : U"<?>") put(character);
  }

  void up() {
    const std::size_t begin = row_begin(), column = at_ - begin;
    full_ = false;
    if (begin > 0) {
      at_ = begin - columns_ + column;
    } else if (line_ > 0) {
      const std::size_t size = lines_[--line_].size();
      at_ = (size == 0 ? 0 : (size - 1) / columns_ * columns_) + column;
    }
  }

  std::size_t columns_, line_ = 0, at_ = 0;  // the cursor: a line, and how far in it
  bool full_ = false;  // the cursor is behind a character that was just written, maybe behind the last column
  std::vector<std::u32string> lines_{1};
};

}  // namespace trireme::testing
