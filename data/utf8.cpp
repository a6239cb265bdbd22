// UTF-8 by its definition table: lead byte -> length, and the smallest value each length may encode.
#include "data/utf8.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

namespace trireme {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

unsigned byte_at(std::string_view text, std::size_t at) { return static_cast<unsigned char>(text[at]); }

/// Length that the lead byte announces; 0 for a byte that cannot start a character.
std::size_t announced_length(unsigned lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return 2;
  if (lead >= 0xE0 && lead <= 0xEF) return 3;
  if (lead >= 0xF0 && lead <= 0xF4) return 4;
  return 0;
}

/// Whether `tail` may follow `lead` as second byte: this is where overlong forms and surrogates are refused.
bool second_byte_fits(unsigned lead, unsigned tail) {
  switch (lead) {
    case 0xE0:
      return tail >= 0xA0 && tail <= 0xBF;
    case 0xED:
      return tail >= 0x80 && tail <= 0x9F;
    case 0xF0:
      return tail >= 0x90 && tail <= 0xBF;
    case 0xF4:
      return tail >= 0x80 && tail <= 0x8F;
    default:
      return tail >= 0x80 && tail <= 0xBF;
  }
}

/// How many of the bytes at `at` are a correct beginning of one character.
std::size_t matching_bytes(std::string_view text, std::size_t at, std::size_t length) {
  std::size_t count = 1;
  while (count < length && at + count < text.size()) {
    const unsigned tail = byte_at(text, at + count);
    const bool fits = count == 1 ? second_byte_fits(byte_at(text, at), tail) : (tail & 0xC0U) == 0x80U;
    if (!fits) break;
    ++count;
  }
  return count;
}

}  // namespace

std::optional<CodePoint> decode_utf8(std::string_view text, std::size_t at) {
  const unsigned lead = byte_at(text, at);
  if (lead < 0x80) return CodePoint{static_cast<char32_t>(lead), 1};
  const std::size_t length = announced_length(lead);
  if (length == 0 || matching_bytes(text, at, length) < length) return std::nullopt;
  unsigned value = lead & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) value = (value << 6) | (byte_at(text, at + i) & 0x3FU);
  return CodePoint{static_cast<char32_t>(value), length};
}

void append_utf8(std::string& text, char32_t value) {
  const auto code = static_cast<unsigned>(value);
  const auto tail = [&](unsigned shift) { text += static_cast<char>(0x80U | ((code >> shift) & 0x3FU)); };
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xC0U | (code >> 6));
    tail(0);
  } else if (code < 0x10000) {
    text += static_cast<char>(0xE0U | (code >> 12));
    tail(6), tail(0);
  } else {
    text += static_cast<char>(0xF0U | (code >> 18));
    tail(12), tail(6), tail(0);
  }
}

std::size_t valid_utf8_prefix(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    std::uint64_t eight = 0;  // most text is ASCII: eight bytes at a time while no high bit is set
    while (at + 8 <= text.size()) {
      std::memcpy(&eight, text.data() + at, 8);
      if ((eight & 0x8080808080808080U) != 0) break;
      at += 8;
    }
    if (at == text.size()) break;
    const auto character = decode_utf8(text, at);
    if (!character) return at;
    at += character->bytes;
  }
  return at;
}

std::string describe_character(char32_t value) {
  const auto code = static_cast<unsigned>(value);
  if (code < 0x20 || (code >= 0x7F && code < 0xA0)) return fmt::format("U+{:04X}", code);
  std::string text;
  append_utf8(text, value);
  return fmt::format("'{}' (U+{:04X})", text, code);
}

namespace {

/// True for control characters. Those of U+0080 to U+009F begin commands as escape does.
bool is_control(char32_t value) { return value < 0x20 || (value >= 0x7F && value < 0xA0); }

/// True for separators of lines, and for characters that change the direction of writing. With these, a text may look
/// like another one.
bool is_deceptive(char32_t value) {
  return (value >= 0x2028 && value <= 0x202E) || (value >= 0x2066 && value <= 0x2069);
}

/// How many bytes from `at` on are one printable character; 0: they are none.
std::size_t printable_bytes(std::string_view text, std::size_t at) {
  const auto character = decode_utf8(text, at);
  return character && !is_control(character->value) && !is_deceptive(character->value) ? character->bytes : 0;
}

/// Appends the character at `at`, escaped unless it is printable. Returns where the next one begins.
std::size_t append_shown(std::string& result, std::string_view text, std::size_t at) {
  const std::size_t bytes = printable_bytes(text, at);
  if (bytes == 0) {
    result += fmt::format("\\x{:02x}", byte_at(text, at));
  } else {
    result += text.substr(at, bytes);
  }
  return at + std::max<std::size_t>(bytes, 1);
}

}  // namespace

std::string in_quotes(std::string_view text) {
  constexpr std::size_t most = 80;
  std::string result = "\"";
  std::size_t at = 0;
  while (at < text.size() && at < most) {
    if (text[at] == '"' || text[at] == '\\') result += '\\';
    at = append_shown(result, text, at);
  }
  return result + (at < text.size() ? "\"..." : "\"");
}

std::string safe_text(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == '\n' || text[at] == '\t') {
      result += text[at++];
    } else {
      at = append_shown(result, text, at);
    }
  }
  return result;
}

std::string safe_line(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) at = append_shown(result, text, at);
  return result;
}

bool is_printable(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = printable_bytes(text, at);
    if (bytes == 0) return false;
    at += bytes;
  }
  return true;
}

std::string Utf8Stream::push(std::string_view bytes) {
  pending_ += bytes;
  std::string ready;
  std::size_t at = 0;
  while (at < pending_.size()) {
    const std::size_t length = announced_length(byte_at(pending_, at));
    const std::size_t matching = length == 0 ? 1 : matching_bytes(pending_, at, length);
    if (length != 0 && matching == length) {
      ready.append(pending_, at, length);
    } else if (length != 0 && at + matching == pending_.size()) {
      break;  // correct so far: the rest may still come
    } else {
      ready += kReplacement;
    }
    at += matching;
  }
  pending_.erase(0, at);
  return ready;
}

std::string Utf8Stream::finish() {
  const bool held = !pending_.empty();
  pending_.clear();
  return held ? std::string(kReplacement) : std::string();
}

}  // namespace trireme
