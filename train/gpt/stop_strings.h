// The text of generated tokens, up to the first of some strings that end it.
//
//   TextUntil text(tokenizer, {"\n\n", "User:"});
//   write_out(text.push(id));       // only what cannot be the beginning of a stop string, and whole characters
//   if (text.ended()) ...           // a stop string was completed; it is not part of the text
//   write_out(text.finish());
//
// A stop string may begin in the middle of one token and end in the middle of another.
// Read next: data/utf8.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer.h"
#include "data/utf8.h"

namespace trireme {

/// The text of tokens, up to a stop string: see the top of this file.
class TextUntil {
 public:
  /// `stops`: not empty strings. The tokenizer must outlive this object.
  TextUntil(const Tokenizer& tokenizer, std::vector<std::string> stops);

  /// The characters that this token makes certain. Nothing after ended(). Throws ExitCode::data for an id outside the
  /// vocabulary.
  std::string push(std::int32_t id);
  /// The characters still held back: no stop string will be completed.
  std::string finish();
  /// Whether a stop string was completed.
  bool ended() const { return ended_; }
  /// All characters so far.
  const std::string& text() const { return text_; }

 private:
  std::string shown(std::string_view bytes);

  const Tokenizer* tokenizer_;
  std::vector<std::string> stops_;
  std::string held_;  // bytes that may be the beginning of a stop string
  Utf8Stream printable_;
  std::string text_;
  bool ended_ = false;
};

/// The strings that --stop names: one string, or a JSON list of strings if it begins with '['. Throws ExitCode::usage.
std::vector<std::string> parse_stop_strings(const std::string& text);

}  // namespace trireme
