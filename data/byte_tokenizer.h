// The byte tokenizer: id = byte. Any file is text to it, and nothing needs to be stored.
// Read next: data/char_tokenizer.h.
#pragma once

#include "data/tokenizer.h"

namespace trireme {

/// One token per byte, 256 in all.
class ByteTokenizer : public Tokenizer {
 public:
  std::string_view name() const override { return "byte"; }
  std::int32_t vocab_size() const override { return 256; }
  void append_ids(std::string_view text, std::vector<std::int32_t>& ids) const override {
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  }
  std::optional<std::size_t> safe_cut(std::string_view text, std::size_t at) const override {
    return at < text.size() ? std::optional(at) : std::nullopt;
  }
  std::string to_json() const override;

 protected:
  void append_bytes(std::int32_t id, std::string& text) const override { text += static_cast<char>(id); }
};

}  // namespace trireme
