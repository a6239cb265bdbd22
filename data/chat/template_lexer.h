// Cuts a chat template into text and the tokens of its tags, with the rules for white space that transformers uses:
// trim_blocks (the line end behind {% %} is dropped) and lstrip_blocks (spaces before {% that begins a line, too).
// Read next: data/chat/template_parser.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme::chat {

/// A piece of a template.
struct Token {
  /// What the piece is.
  enum class Kind : std::uint8_t {
    text,
    begin_print,
    end_print,
    begin_tag,
    end_tag,
    name,
    number,
    string,
    symbol,
    end
  };
  Kind kind;
  std::string text;
  int line;
};

/// Throws ExitCode::data, with the line, for a tag that does not end and for characters that no tag may have.
std::vector<Token> tokens_of(std::string_view text, std::string_view path);

}  // namespace trireme::chat
