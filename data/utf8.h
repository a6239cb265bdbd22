// UTF-8 (RFC 3629): strict decoding of one character at a time, and a stream that prints only whole characters.
// Read next: data/char_tokenizer.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trireme {

/// A character and its length.
struct CodePoint {
  char32_t value = 0;
  std::size_t bytes = 0;  ///< its length in UTF-8: 1 to 4
};

/// The character that starts at `at` (< text.size()), or nothing where the bytes are not UTF-8: overlong forms,
/// surrogates, values above U+10FFFF and sequences cut short are refused.
std::optional<CodePoint> decode_utf8(std::string_view text, std::size_t at);

/// Bytes of the character that begins with this one, in text that is UTF-8.
inline std::size_t utf8_bytes(char first) {
  const auto high = static_cast<unsigned char>(first) >> 4;
  return high < 12 ? 1 : high < 14 ? 2 : high == 14 ? 3 : 4;
}

/// Appends the character in UTF-8.
void append_utf8(std::string& text, char32_t value);

/// Length of the longest prefix that is UTF-8; text.size() when all of it is.
std::size_t valid_utf8_prefix(std::string_view text);

/// A character for a message: 'x' (U+0078), control characters as their number only.
std::string describe_character(char32_t value);

/// A text from a file for a message: in quotes, with what is not printable escaped, and cut after 80 bytes or so.
std::string in_quotes(std::string_view text);
/// Text of any origin for a terminal, uncut: everything that is not printable is escaped ("\x1b"), except line ends and
/// tabs.
std::string safe_text(std::string_view text);
/// The same for text within a line: line ends and tabs are escaped, too.
std::string safe_line(std::string_view text);
/// True if a terminal shows all of it, in this order, and takes none of it as a command: UTF-8 without control
/// characters, without separators of lines, and without characters that change the direction of writing.
bool is_printable(std::string_view text);

/// Turns decoded tokens into printable text. One token may end in the middle of a character (byte-level tokenizers), so
/// its bytes are held back until the rest arrives. Bytes that can never become a character print as U+FFFD.
class Utf8Stream {
 public:
  std::string push(std::string_view bytes);  ///< the characters completed so far
  std::string finish();                      ///< what is still held back, as U+FFFD

 private:
  std::string pending_;
};

}  // namespace trireme
