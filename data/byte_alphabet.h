// GPT-2's printable spelling of bytes, which its files use so that no token holds a space or a control character:
// printable Latin-1 bytes stand for themselves, the others for U+0100 onwards.
// Read next: data/tokenizer_files.cpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace trireme {

/// The spelling of these bytes.
std::string spell_bytes(std::string_view bytes);
/// The inverse; nothing where a character is not in that alphabet.
std::optional<std::string> unspell_bytes(std::string_view spelling);

}  // namespace trireme
