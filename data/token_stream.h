// Turns generated tokens into printable text, one after the other.
//
//   TokenStream stream(tokenizer);
//   generate(model, prompt, options, [&](std::int32_t id) { write_out(stream.push(id)); });
//   write_out(stream.finish());
//
// Read next: data/tokenizer.h.
#pragma once

#include <string>

#include "data/tokenizer.h"
#include "data/utf8.h"

namespace trireme {

/// Bytes of a character are held back until the character is complete. The tokens continue a text: what decode() takes
/// away at the beginning of a text, such as the first space, stays.
class TokenStream {
 public:
  explicit TokenStream(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

  /// The characters that this token completes. Throws ExitCode::data for an id outside the vocabulary.
  std::string push(std::int32_t id) { return printable_.push(tokenizer_->decode_further(id)); }
  /// What is still held back, as U+FFFD.
  std::string finish() { return printable_.finish(); }

 private:
  const Tokenizer* tokenizer_;
  Utf8Stream printable_;
};

}  // namespace trireme
