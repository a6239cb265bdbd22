#include "data/chat/template_lexer.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "data/utf8.h"

namespace trireme::chat {
namespace {

constexpr std::string_view white = " \t\n\r\v\f";

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  Lexer(std::string_view text, std::string_view path) : text_(text), path_(path) {
    // As Jinja does: a last line end is not part of the template.
    if (text_.ends_with('\n')) text_.remove_suffix(1);
    if (text_.ends_with('\r')) text_.remove_suffix(1);
  }

  std::vector<Token> run() {
    while (at_ < text_.size()) {
      const std::size_t begin = next_opening();
      read_text(begin);
      if (begin >= text_.size()) break;
      at_ = begin;
      read_opening();
    }
    add(Token::Kind::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    fail(ExitCode::data, "chat template", "{} line {}: {}", path_, line_, what);
  }
  void add(Token::Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  void advance(std::size_t count) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(at_ + count), '\n'));
    at_ += count;
  }
  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool sees(std::string_view what) const { return text_.substr(at_).starts_with(what); }

  std::size_t next_opening() const {
    for (std::size_t i = at_; i + 1 < text_.size(); ++i)
      if (text_[i] == '{' && (text_[i + 1] == '{' || text_[i + 1] == '%' || text_[i + 1] == '#')) return i;
    return text_.size();
  }

  /// The text up to a tag at `end`, without the white space that the tags around it drop.
  void read_text(std::size_t end) {
    std::string text(text_.substr(at_, end - at_));
    const char mark = end + 2 < text_.size() ? text_[end + 2] : '\0';
    const bool tag = end < text_.size(), block = tag && text_[end + 1] != '{';
    const int line = line_;
    const bool at_line_begin_before = at_ == 0 || text_[at_ - 1] == '\n';
    if (drop_all_) text.erase(0, std::min(text.find_first_not_of(white), text.size()));
    if (drop_line_end_ && !drop_all_) {
      if (text.starts_with("\r\n")) {
        text.erase(0, 2);
      } else if (text.starts_with('\n')) {
        text.erase(0, 1);
      }
    }
    if (tag && mark == '-') {
      text.erase(text.find_last_not_of(white) + 1);
    } else if (block && mark != '+') {
      const std::size_t line_begin = text.rfind('\n') + 1;  // 0 if there is none
      const bool whole_line = line_begin > 0 || at_line_begin_before || dropped_line_end(end);
      if (whole_line && text.find_first_not_of(" \t", line_begin) == std::string::npos) text.erase(line_begin);
    }
    drop_all_ = drop_line_end_ = false;
    if (!text.empty()) tokens_.push_back({Token::Kind::text, text, line});
    advance(end - at_);
  }
  /// Whether the text before a tag at `end` began with a line end, which may have been dropped.
  bool dropped_line_end(std::size_t end) const {
    return text_.substr(at_, end - at_).find('\n') != std::string_view::npos;
  }

  void read_opening() {
    const char kind = peek(1);
    if (kind == '#') return read_comment();
    advance(2);
    if (peek() == '-' || (kind == '%' && peek() == '+')) advance(1);
    if (kind == '%' && is_raw()) return read_raw();
    add(kind == '{' ? Token::Kind::begin_print : Token::Kind::begin_tag, "");
    read_inside(kind == '{' ? "}}" : "%}");
  }
  void read_comment() {
    const std::size_t end = text_.find("#}", at_ + 2);
    if (end == std::string_view::npos) refuse("a comment does not end; expected '#}'");
    close(end > at_ + 2 ? text_[end - 1] : '\0', true);
    advance(end + 2 - at_);
  }
  void close(char mark, bool block) {
    drop_all_ = mark == '-';
    drop_line_end_ = block && mark != '+';
  }
  bool is_raw() const {
    std::size_t i = std::min(text_.find_first_not_of(white, at_), text_.size());
    if (!text_.substr(i).starts_with("raw")) return false;
    i = std::min(text_.find_first_not_of(white, i + 3), text_.size());
    return text_.substr(i).starts_with("%}") || text_.substr(i).starts_with("-%}");
  }
  void read_raw() {
    const std::size_t open = text_.find("%}", at_);
    close(text_[open - 1], true);
    advance(open + 2 - at_);
    for (std::size_t end = at_; (end = text_.find("{%", end)) != std::string_view::npos; ++end) {
      const std::size_t word = text_.find_first_not_of(" \t\n\r-+", end + 2), shut = text_.find("%}", end);
      if (word == std::string_view::npos || shut == std::string_view::npos) break;
      if (!text_.substr(word).starts_with("endraw")) continue;
      read_text(end);
      close(text_[shut - 1], true);
      return advance(shut + 2 - at_);
    }
    refuse("{% raw %} does not end; expected {% endraw %}");
  }

  void read_inside(std::string_view end) {
    while (true) {
      advance(std::min(text_.find_first_not_of(white, at_), text_.size()) - at_);
      if (at_ >= text_.size()) refuse(fmt::format("a tag does not end; expected '{}'", end));
      const bool marked = (peek() == '-' || (peek() == '+' && end == "%}")) && text_.substr(at_ + 1).starts_with(end);
      if ((sees(end) && braces_ == 0) || marked) {
        close(marked ? peek() : '\0', end == "%}");
        advance(marked ? 3 : 2);
        return add(end == "%}" ? Token::Kind::end_tag : Token::Kind::end_print, "");
      }
      read_token();
    }
  }
  void read_token() {
    const char c = peek();
    if (is_letter(c)) return read_run(Token::Kind::name, [](char x) { return is_letter(x) || is_digit(x); });
    if (is_digit(c)) return read_number();
    if (c == '\'' || c == '"') return read_string(c);
    static constexpr std::array<std::string_view, 6> pairs = {"==", "!=", "<=", ">=", "//", "**"};
    for (const std::string_view pair : pairs)
      if (sees(pair)) return add_symbol(pair);
    if (std::string_view("+-*/%~<>=()[]{}.,:|").find(c) == std::string_view::npos)
      refuse(fmt::format("{} in a tag; expected an expression", in_quotes(text_.substr(at_, 1))));
    if (c == '{') ++braces_;
    if (c == '}' && braces_ > 0) --braces_;
    add_symbol(text_.substr(at_, 1));
  }
  void add_symbol(std::string_view symbol) {
    add(Token::Kind::symbol, std::string(symbol));
    advance(symbol.size());
  }
  template <class F>
  void read_run(Token::Kind kind, const F& belongs) {
    std::size_t count = 1;
    while (at_ + count < text_.size() && belongs(text_[at_ + count])) ++count;
    add(kind, std::string(text_.substr(at_, count)));
    advance(count);
  }
  void read_number() {
    std::size_t count = 1;
    while (is_digit(peek(count)) || peek(count) == '_') ++count;
    if (peek(count) == '.' && is_digit(peek(count + 1))) {
      ++count;
      while (is_digit(peek(count))) ++count;
    }
    std::string digits(text_.substr(at_, count));
    std::erase(digits, '_');
    add(Token::Kind::number, digits);
    advance(count);
  }
  void read_string(char quote) {
    std::string value;
    std::size_t i = at_ + 1;
    for (; i < text_.size() && text_[i] != quote; ++i) {
      if (text_[i] != '\\' || i + 1 == text_.size()) {
        value += text_[i];
        continue;
      }
      i = append_escaped(value, i + 1);
    }
    if (i >= text_.size()) refuse("a text in quotes does not end");
    add(Token::Kind::string, value);
    advance(i + 1 - at_);
  }
  /// The character that a backslash before place `i` makes; returns the last place that it took.
  std::size_t append_escaped(std::string& value, std::size_t i) const {
    static constexpr std::string_view letters = "ntrbfav\\'\"", meanings = "\n\t\r\b\f\a\v\\'\"";
    const char c = text_[i];
    const std::size_t known = letters.find(c);
    if (known != std::string_view::npos) {
      value += meanings[known];
      return i;
    }
    const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    const std::string hex(text_.substr(i + 1, digits));
    if (digits > 0 && hex.size() == digits && hex.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos) {
      const unsigned long number = std::stoul(hex, nullptr, 16);
      if (number > 0x10FFFF || (number >= 0xD800 && number < 0xE000))
        refuse(fmt::format("\\{}{} is not a character", c, hex));
      append_utf8(value, static_cast<char32_t>(number));
      return i + digits;
    }
    value += '\\';
    value += c;
    return i;
  }

  std::string_view text_, path_;
  std::size_t at_ = 0;
  int line_ = 1, braces_ = 0;
  bool drop_all_ = false, drop_line_end_ = false;  // what the last tag asks of the text behind it
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokens_of(std::string_view text, std::string_view path) { return Lexer(text, path).run(); }

}  // namespace trireme::chat
