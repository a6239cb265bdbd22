#include "data/byte_alphabet.h"

#include <array>

#include "data/utf8.h"

namespace trireme {

namespace {

constexpr std::size_t kAlphabetEnd = 0x144;  // behind the last character that stands for a byte

struct ByteAlphabet {
  std::array<std::string, 256> spelling;    // of each byte
  std::array<int, kAlphabetEnd> byte_of{};  // -1: the character stands for none

  ByteAlphabet() {
    byte_of.fill(-1);
    char32_t next = 256;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      const char32_t character = printable ? byte : next++;
      append_utf8(spelling[byte], character);
      byte_of[character] = static_cast<int>(byte);
    }
  }
};

const ByteAlphabet& byte_alphabet() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

}  // namespace

std::string spell_bytes(std::string_view bytes) {
  std::string spelling;
  for (const char c : bytes) spelling += byte_alphabet().spelling[static_cast<unsigned char>(c)];
  return spelling;
}

std::optional<std::string> unspell_bytes(std::string_view spelling) {
  std::string text;
  for (std::size_t at = 0; at < spelling.size();) {
    const auto character = decode_utf8(spelling, at);
    if (!character || character->value >= kAlphabetEnd) return std::nullopt;
    const int byte = byte_alphabet().byte_of[character->value];
    if (byte < 0) return std::nullopt;
    text += static_cast<char>(byte);
    at += character->bytes;
  }
  return text;
}

}  // namespace trireme
